"""Numbers and names as people read them."""

GIB, MIB = 1 << 30, 1 << 20
MINUTE, HOUR = 60, 3600
METRIC_TITLES = {
    "average_precision": "AP",
    "mean_absolute_error": "MAE",
    "macro_f1": "F1",
    "accuracy": "accuracy",
    "accuracy_sbm": "accuracy (mean of classes)",
    "mrr": "MRR",
}


def metric_title(name: str) -> str:
    """What a table calls a metric."""
    return METRIC_TITLES.get(name, name.replace("_", " "))


def bytes_of(count: int) -> str:
    """A size of memory."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def time_of(seconds: float) -> str:
    """A time in the two largest units that it has."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"
