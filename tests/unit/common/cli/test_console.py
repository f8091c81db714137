import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROGRAM = [sys.executable, "-m", "tests.unit.console_program"]
HEAVY = ("numpy", "pyarrow", "pandas", "scipy", "rich", "jinja2", "grpc")


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def _on_a_terminal(arguments: list[str], typed: str = "") -> tuple[int, str]:
    """Run the program with a terminal as its three streams."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    with subprocess.Popen(
        [*PROGRAM, *arguments], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the terminal's other end has closed
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    return process.returncode, seen.decode()


@pytest.mark.parametrize(
    ("how", "code", "error"),
    [
        ("well", 0, ""),
        ("code", 8, ""),
        (
            "balance",
            5,
            (
                "error: budget 'adult' has 0.5 left, and 1 would be charged\n"
                "hint: ask for a smaller epsilon; a budget is for the lifetime of its data and does "
                "not refill\n"
            ),
        ),
        ("conflict", 3, "error: two\\x1b[31m\n  lines\nhint: look\n"),
        ("group", 7, "error: broken\n"),
        (
            "denied",
            2,
            (
                "error: /srv/state/owner.db cannot be used: Permission denied\n"
                "hint: run the command as the user of the daemon (sudo -u USER), or check whose file it is\n"
            ),
        ),
        (
            "full",
            2,
            (
                "error: /srv/scratch/tessera-records-1 cannot be used: No space left on device\n"
                "hint: make room there, then retry\n"
            ),
        ),
    ],
)
def test_every_end_has_its_exit_code_and_its_words(how, code, error):
    """Scripts rely on the exit code, people on the error and its hint; no peer steers a terminal."""
    done = _run("end", how)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", error)


def test_an_unknown_fault_is_one_line_without_its_text():
    """An exception of a library, which may quote a record, never reaches the screen, nor does a traceback."""
    done = _run("end", "fault")
    assert done.returncode == 1
    assert done.stderr.startswith("error: internal fault (ValueError at unit/console_program.py:")
    assert "Maria" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_at_debug_the_log_has_the_places_of_a_fault_and_still_not_its_text():
    """A fault can be traced without a value in the log."""
    done = _run("end", "fault", "--log-level", "debug")
    line = json.loads(done.stderr.splitlines()[0])
    assert line["event"] == "internal fault"
    assert line["traceback"][-1] == "ValueError"
    assert any("console_program.py" in place for place in line["traceback"])
    assert "Maria" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command"),
        (["edn"], "Did you mean 'end'?"),
        (["end"], "Missing argument 'how'"),
        (["end", "well", "--log-level", "loud"], "loud"),
        (["end", "well", "--colour"], "--colour"),
    ],
)
def test_a_wrong_command_line_is_exit_2_in_the_same_form(arguments, words):
    """Typing errors look like every other error, on a terminal and as JSON."""
    done = _run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr.splitlines()[0]
    assert "--help" in done.stderr.splitlines()[1]
    as_json = _run(*arguments, "--json")
    assert as_json.returncode == 2
    assert (as_json.stderr, json.loads(as_json.stdout)["error"]["code"]) == ("", "usage")


def test_errors_as_json():
    """With --json, standard output holds one document with code, message, hint and details."""
    done = _run("end", "conflict", "--json")
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout) == {
        "error": {
            "code": "conflict",
            "message": "two\x1b[31m\nlines",
            "hint": "look",
            "details": {"count": "1.50"},
        }
    }
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", ["wait", "pause"])
def test_ctrl_c_is_exit_130_without_a_traceback(command):
    """An interrupted command ends like one, with and without a loop."""
    with subprocess.Popen(
        [*PROGRAM, command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_fault():
    """`… | head` ends quietly."""
    with subprocess.Popen(
        [*PROGRAM, "flood"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (1, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show"], 6),
        (["show", "--json"], 6),
        (["flood"], 6),
        (["end", "conflict", "--json"], 3),
        (["end", "well"], 0),
    ],
)
@pytest.mark.parametrize("redirection", ["> /dev/full"])
def test_output_that_cannot_be_written_is_told(redirection, arguments, code, unbuffered):
    """A full disk below standard output is an error; other errors are still shown."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM, *arguments],
        cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    reason = "No space left on device"
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    told = {0: [], 3: ["error: two\\x1b[31m", "hint: look"]}
    expected = told.get(code, [f"error: the output cannot be written: {reason}"])
    assert lines[: len(expected)] == expected
    assert len(lines) == (2 if code else 0)


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("redirection", ["> /dev/full"])
def test_help_that_cannot_be_written_is_told(redirection, option):
    """The library prints it, and its errors are the system's."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM, option]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 6
    assert done.stderr.startswith("error: the output cannot be written: ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("redirection", ["2> /dev/full"])
def test_other_streams_that_cannot_be_used_change_no_exit_code(redirection, unbuffered):
    """Where nothing can be said, the exit code still says it, and progress goes on unseen."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    ends = (
        (["end", "conflict"], 3),
        (["end", "fault", "--log-level", "debug"], 1),
        (["show"], 0),
        (["ask"], 2),
    )
    for arguments, code in ends:
        command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60)
        assert done.returncode == code


def test_plain_output_is_aligned_and_progress_tells_changes_only():
    """Output into a file is readable, stable and holds no drawing; progress stays out of the result."""
    done = _run("show")
    assert done.stdout.splitlines() == [
        "Owners",
        "owner     n  epsilon  ok",
        "a\\x07     5       10  yes",
        "bb     1234        –  no",
        "no rich",
    ]
    assert done.stderr.splitlines() == [
        "making",
        "a: state inviting, n –",
        "b: state inviting, n 1",
        "a: state masking, n –",
    ]


def test_json_output_is_one_document_with_exact_decimals():
    """A program reads the whole of standard output as one document, and decimals survive it."""
    done = _run("show", "--json")
    assert (done.stderr, done.stdout) == ("", '{\n  "a": [\n    1,\n    null\n  ],\n  "b": "1.50"\n}\n')


def test_a_stream_without_unicode_gets_escapes():
    """An old locale shows a name escaped; it does not turn a finished release into a fault."""
    done = _run("show", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.splitlines()[3]) == (0, "bb     1234        \\u2013  no")
    document = _run("end", "conflict", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(document.stdout)["error"]["code"] == "conflict"


def test_a_terminal_gets_drawn_tables():
    """On a terminal rich draws, and text is still not taken for commands to the terminal."""
    code, seen = _on_a_terminal(["show"])
    assert code == 0
    assert "━" in seen
    assert "masking" in seen
    assert "a\\x07" in seen
    assert "\x07" not in seen


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 2), ("\n", 2), ("\x04", 2)])
def test_only_a_clear_yes_goes_on(typed, code):
    """Nothing is spent because somebody pressed return, or closed the terminal."""
    assert _on_a_terminal(["ask"], typed)[0] == code


def test_without_a_terminal_nothing_is_asked():
    """A script that forgot --yes ends at once, before anything happens."""
    done = _run("ask")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert _run("ask", "--yes").stdout == "went on\n"


def test_processes_are_made_by_forks_while_there_are_calls():
    """GRPC's handlers of forks, which programs switch off, end a part of the new processes."""
    assert _run("fork").stdout == "codes [0]\n"


@pytest.mark.parametrize("module", ["owner_node.cli", "aggregator.cli"])
def test_command_lines_start_without_heavy_libraries(module):
    """`--help` is quick, and an idle daemon does not carry libraries that it has not needed yet."""
    code = f"import sys; from {module} import application; application(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(HEAVY) & set(done.stdout.split()) == set()


@pytest.mark.parametrize("module", ["owner_node.cli.run", "aggregator.cli.serve"])
def test_daemons_start_without_libraries_for_data(module):
    """An idle daemon does not carry libraries that it has not needed yet."""
    code = f"import sys; import {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (set(HEAVY) - {"grpc"}) & set(done.stdout.split()) == set()


@pytest.mark.parametrize(
    ("modules", "needed"),
    [
        ("owner_node.cli.status, owner_node.cli.history, owner_node.cli.ledger", set()),
        ("aggregator.cli.inspect, aggregator.cli.release", {"rich", "grpc"}),
    ],
)
def test_commands_that_show_a_state_start_without_heavy_libraries(modules, needed):
    """They answer at once: numpy alone would take a quarter of their time, gRPC as much of an owner's."""
    code = f"import sys; import {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(HEAVY) & set(done.stdout.split()) == needed


@pytest.mark.parametrize("module", ["owner_node.cli", "aggregator.cli"])
def test_both_programs_tell_their_version_and_their_commands(module):
    """The entry points of the distribution work."""
    from common import __version__

    code = f"import sys; from {module} import main; main()"
    name = module.split(".", maxsplit=1)[0].replace("_", "-")
    for option, words in (("--version", f"{name} {__version__}\n"), ("--help", f"Usage: {name} ")):
        done = subprocess.run([sys.executable, "-c", code, option], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stdout[: len(words)]) == (0, words)
