"""Checks for public doors; every message names the argument, the rule and the value."""

from collections.abc import Collection

from graphmamba.errors import UserError


def check_choice(argument: str, value: object, choices: Collection[object]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise UserError(f"{argument} must be one of {listed}, got {value!r}")


def check_least(argument: str, value: int | float, least: int | float) -> None:
    """Refuse a number below the least one allowed."""
    if not value >= least:
        raise UserError(f"{argument} must be at least {least}, got {value!r}")


def check_fraction(argument: str, value: int | float) -> None:
    """Refuse a rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise UserError(f"{argument} must be in [0, 1), got {value!r}")


def check_divides(argument: str, value: int, name: str, total: int) -> None:
    """Refuse a count that does not divide a width evenly."""
    if value < 1 or total % value:
        raise UserError(f"{argument} must divide {name}={total}, got {value!r}")
