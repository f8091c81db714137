"""Options that are given without a value: a script's variable that is not set.

Left out, most options mean "all" or "the default". Given empty they would mean the same by accident: every
attribute released where one was meant, or at each run a new id and a new charge.
"""

from typing import Any

from common.errors import UsageError


def refuse_blank(command: Any) -> None:
    """Have a command and all below it refuse options whose value is blank.

    Args:
        command: What `typer.main.get_command` returns; changed.
    """
    for each in getattr(command, "commands", {}).values():
        refuse_blank(each)
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.is_flag:
            _check_values(parameter)


def _check_values(parameter: Any) -> None:
    # As text: once it is a path, nothing is the current folder.
    consume = parameter.consume_value

    def consume_checked(context: Any, texts: Any) -> Any:
        given = texts.get(parameter.name)
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, str) and not value.strip():
                raise UsageError(
                    f"{max(parameter.opts, key=len)} is empty",
                    "give it a value, or leave it out; in a script, look whether a variable is not set",
                )
        return consume(context, texts)

    parameter.consume_value = consume_checked
