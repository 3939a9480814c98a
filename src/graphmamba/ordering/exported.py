"""What holds of sizes while a model is exported, when they are symbols."""

import torch


def is_sure(fact: bool) -> bool:
    """Tell whether a fact about sizes holds; in an export, whether it does for all of them.

    To ask for more would limit the exported program to sizes that are like those of its example.
    """
    if not torch.compiler.is_exporting():
        return fact
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(fact)
