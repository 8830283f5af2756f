"""What can be wrong with the description of a kernel."""


class DslError(Exception):
    """A kernel's description is not valid; the message names the kernel and the reason."""


class LevelError(DslError):
    """An instruction needs an extension that the kernel's level does not have."""


class RegisterBudgetError(DslError):
    """A kernel asks for more registers than its level has."""
