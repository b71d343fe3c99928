"""The one exception of the exporter: a sentence for the user and an exit code."""

OK = 0
CHECK_FAILED = 1
USAGE = 64
BAD_INPUT = 65
MISSING = 66
CANNOT_WRITE = 73


class ExportError(Exception):
    """Something the user can act on. `exit_code` is what the command returns."""

    def __init__(self, sentence, exit_code=BAD_INPUT):
        super().__init__(sentence)
        self.exit_code = exit_code
