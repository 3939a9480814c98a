"""`UserError`: errors that users cause and can fix."""


class UserError(ValueError):
    """An error of the user: commands show it as one line, without a traceback.

    The message names the argument, the rule and the value.
    """


class UnwritableError(UserError):
    """A place that nothing can be written to."""


class ElsewhereError(UserError):
    """An error that another process of the same run reports."""
