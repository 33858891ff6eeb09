"""`robo-rl <verb> key=value ...`: finds the verb, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from robo_rl.apps.cli.aliases import by_engine, typed_verb
from robo_rl.apps.cli.multirun import FLAGS, Ended, multirun, skips
from robo_rl.apps.cli.resumed import refuse_changed
from robo_rl.apps.cli.settings_file import check_keys, expand
from robo_rl.apps.cli.user_code import user_line
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.core.errors import (
    ChangedSettingsError,
    MissingDependencyError,
    RoboRLError,
    UnknownNameError,
)
from robo_rl.core.files.path_error import explained
from robo_rl.core.packages import OURS
from robo_rl.core.plugins import load_plugins

GROUPS = {name.split()[0] for name in VERBS if " " in name}  # first words of two-word verbs, e.g. "data"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script. Returns the exit code; a user's mistake prints no traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt as stop:
        return _stopped(stop)
    except BrokenPipeError:  # the reader of our output has ended (`robo-rl info | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if (interrupt := _interrupt_in(error)) is not None:
            return _stopped(interrupt)
        return _say(*_explained(error))


def _one_of_sweep(name: str, words: list[str], origin: dict[str, Path]) -> Ended:
    """Run one combination of a sweep. An error is printed and returned; Ctrl-C ends the sweep."""
    try:
        typed, given = name, words
        name, words = _in_full(name, words, origin)
        typed = typed_verb(typed, given, name)
        return 0 if skips(name, words) else _call(name, words, origin, typed), ""
    except BrokenPipeError:
        raise
    except Exception as error:
        if _interrupt_in(error) is not None:
            raise
        sentence, code = _explained(error)
        return _say(sentence, code), sentence


def _interrupt_in(error: Exception) -> KeyboardInterrupt | None:
    """The interrupt behind a failed import: that of an extension module, interrupted, looks like one."""
    cause = (error.__cause__ or error.__context__) if isinstance(error, ImportError) else None
    return cause if isinstance(cause, KeyboardInterrupt) else None


def _explained(error: Exception) -> tuple[str, int]:
    """Sentence and exit code of an error; that of a defect is printed with its traceback."""
    known = error if isinstance(error, RoboRLError) else None
    if isinstance(error, OSError):
        known = explained(error)
    return _defect(error) if known is None else (str(known), known.exit_code)


def _dispatch(arguments: list[str]) -> int:
    name, rest = _split(arguments)
    if name in ("", "-h", "--help", "help"):
        from robo_rl.apps.cli.help import overview

        print(overview())
        return 0
    if name in ("--version", "-V"):
        from robo_rl.core.provenance import versions

        print(f"robo-rl {versions().get('robo-rl', 'from a checkout that is not installed')}")
        return 0
    if name in GROUPS:
        from robo_rl.apps.cli.help import overview

        print(overview(name))
        return 0
    if name not in VERBS:
        raise UnknownNameError("verb", name, VERBS)
    load_plugins()
    sweeps = bool(set(FLAGS) & set(rest))
    rest, origin = expand([word for word in rest if word not in FLAGS], name, sweeps=sweeps)
    if sweeps and not {"-h", "--help"} & set(rest):
        return multirun(name, rest, lambda words: _one_of_sweep(name, words, origin))
    typed, given = name, rest
    name, rest = _in_full(name, rest, origin)
    if {"-h", "--help"} & set(rest):
        from robo_rl.apps.cli.help import verb_help

        settings, shown = [word for word in rest if "=" in word], typed_verb(typed, given, name)
        print(verb_help(name, settings, everything="all" in rest, typed=shown))
        return 0
    words = ["json=true" if argument == "--json" else argument for argument in rest]
    return _call(name, words, origin, typed_verb(typed, given, name))


def _in_full(name: str, words: list[str], origin: dict[str, Path]) -> tuple[str, list[str]]:
    """The verb and the words without short forms. origin: the file of each setting from a file."""
    name, words = by_engine(name, words)
    if origin:
        check_keys(name, words, origin, known_keys(name))
    return name, words


def known_keys(name: str) -> set[str]:
    """Settings, groups and keys of scenes that a verb accepts."""
    from robo_rl.apps.cli.aliases import scene_words
    from robo_rl.apps.cli.config import groups
    from robo_rl.apps.cli.help import load_schema
    from robo_rl.conf.fields import settings, variants

    schema = load_schema(VERBS[name])
    return {
        *settings(schema),
        *groups(schema),
        *scene_words(name),
        *(f"{key}.name" for key in variants(schema)),
    }


def _split(arguments: list[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two (`data info`), and its overrides."""
    if not arguments:
        return "", []
    if arguments[0] in GROUPS and len(arguments) > 1 and not arguments[1].startswith("-"):
        return " ".join(arguments[:2]), arguments[2:]
    return arguments[0], arguments[1:]


def _call(name: str, overrides: list[str], origin: Collection[str], typed: str) -> int:
    """Run the verb. origin: settings that come from a file. typed: the verb as it was typed, for messages."""
    from robo_rl.apps.cli.config import load_config
    from robo_rl.apps.cli.help import load_schema
    from robo_rl.core.packages import install_command

    config: Any = None
    began_s = time.time()
    try:
        config = load_config(name, overrides, load_schema(VERBS[name]), typed)
        module, function = VERBS[name].target.split(":")
        return int(getattr(import_module(module), function)(config) or 0)
    except KeyboardInterrupt as stop:
        raise _with_message(stop, name, config, began_s) from stop
    except ChangedSettingsError:
        raise
    except RoboRLError:
        refuse_changed(name, overrides, origin, config)
        raise
    except RuntimeError:
        from sim.render.gl import check_gl_name

        check_gl_name()  # MuJoCo cannot be imported with an unknown one
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in OURS:
            raise
        raise MissingDependencyError(
            f"robo-rl {name} needs the package '{error.name}', which is not installed. "
            f"Run: {install_command(error.name, VERBS[name].extra)}"
        ) from error
    except ImportError as error:
        if (interrupt := _interrupt_in(error)) is None:
            raise
        raise _with_message(interrupt, name, config, began_s) from error


def _with_message(stop: KeyboardInterrupt, name: str, config: Any, began_s: float) -> KeyboardInterrupt:
    """The interrupt with a clause on what it left of the verb."""
    from robo_rl.apps.cli.stopped import stopped_words

    return stop if stop.args else KeyboardInterrupt(stopped_words(name, config, began_s))


def _stopped(stop: KeyboardInterrupt) -> int:
    return _say(f"stopped; {stop.args[0] if stop.args else 'nothing was started'}.", 130)


def _say(sentence: str, code: int) -> int:
    print(f"robo-rl: {sentence}", file=sys.stderr)
    return code


def _defect(error: Exception) -> tuple[str, int]:
    """Print the traceback; returns where the error is and the exit code: 2 in a user's own file, 1 in
    robo-rl.
    """
    traceback.print_exception(error)
    if (at := user_line(error)) is not None:
        where = f"{at.file} line {at.line}"
        if at.innermost:
            theirs = not isinstance(error, ModuleNotFoundError)  # only modules of robo-rl get here
            return f"the error is in {where}, see the lines above.", RoboRLError.exit_code if theirs else 1
        return (
            f"the error is in what {where} asks of robo-rl, see the lines above. If that line is right, "
            "report it with the output of `robo-rl doctor`.",
            1,
        )
    return (
        "this is an error in robo-rl itself; please report it with the lines above and the output of "
        "`robo-rl doctor`.",
        1,
    )


if __name__ == "__main__":
    sys.exit(main())
