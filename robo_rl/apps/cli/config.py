"""Settings of a verb from `key=value` words: composed by hydra, returned as a dataclass.

Mistakes become one sentence that names the key. Only this file composes with hydra. A verb's settings come
from its dataclass. Groups of values in YAML (`robo_rl/conf/<field>/<option>.yaml`) are chosen by
`field=option` and named in `robo_rl/conf/<verb>.yaml`, whose `defaults` list starts with `<verb>_schema`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, cast

from robo_rl.apps.cli.aliases import scene_words
from robo_rl.apps.cli.overrides import did_you_mean, for_hydra, split
from robo_rl.apps.cli.settings_file import read_mapping
from robo_rl.conf.dotted import flat
from robo_rl.conf.fields import Setting, settings, variants
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import OWN
from robo_rl.core.settings import finite_words

CONF = Path(__file__).resolve().parents[2] / "conf"
T = TypeVar("T")
_STORED: dict[str, tuple[type, dict[str, type]]] = {}  # in hydra: name -> what the schema is made of


def groups(schema: type) -> dict[str, list[str]]:
    """YAML groups of a schema, e.g. {"method": ["auto", "residual"]}: folders named like one of its fields.

    A field whose options are dataclasses has no YAML.
    """
    names = {key.split(".")[0] for key in settings(schema)} - variants(schema).keys()
    return {
        folder.name: sorted(path.stem for path in folder.glob("*.yaml"))
        for folder in sorted(CONF.iterdir())
        if folder.name in names and any(folder.glob("*.yaml"))
    }


def default_option(verb: str, group: str) -> str:
    """Option of a group that the verb uses if none is given; empty for a group without a default."""
    file = CONF / f"{verb}.yaml"
    listed = read_mapping(str(file)).get("defaults", []) if file.exists() else []
    return next((str(item[group]) for item in listed if isinstance(item, dict) and group in item), "")


def load_config(verb: str, overrides: Sequence[str], schema: type[T], typed: str = "") -> T:
    """Settings of the verb with `key=value` overrides applied, as an instance of `schema`.

    typed: what the user typed for the verb, for messages; empty: the verb itself.

    Raises ConfigError, with the key and a remedy, for a mistyped key, a value of the wrong type, a group
    option that does not exist or a missing required setting.
    """
    known = settings(schema)
    if not overrides and not groups(schema) and not any(setting.required for setting in known.values()):
        return schema()  # nothing to parse: `robo-rl doctor` must work without hydra
    config = _compose(verb, overrides, schema, known, as_object=True, shown=typed or verb)
    _check_values(config, known)
    return cast("T", config)


def preview(verb: str, overrides: Sequence[str], schema: type) -> dict[str, Any]:
    """Dotted key -> resulting value, for help texts; missing required values are REQUIRED."""
    known = settings(schema)
    if not overrides and not groups(schema):
        return {key: setting.default for key, setting in known.items()}
    tree = _compose(verb, overrides, schema, known, as_object=False, shown=verb)
    return {key: _nested_value(tree, key) for key in known}


def _compose(
    verb: str, overrides: Sequence[str], schema: type, known: dict[str, Setting], as_object: bool, shown: str
) -> Any:
    """Composed settings: an instance of `schema`, or nested dicts that may contain REQUIRED values.

    shown: the verb in messages.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import MissingMandatoryValue, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    options = groups(schema)
    there, of_tasks = known.keys() | options.keys(), scene_words(verb)
    kinds = variants(schema)
    chosen_by = {f"{key}.name": key for key in kinds}  # `net: {name: mlp}` in a file is `net=mlp`
    pairs = zip_longest(overrides, overrides[1:], fillvalue="")
    given = [split(shown, word, there | chosen_by.keys(), of_tasks, after) for word, after in pairs]
    given = [(chosen_by.get(key, key), value) for key, value in given]
    given = [(key, _own_option(key, value, known, options)) for key, value in given]
    chosen = {key: _kind(key, value, kinds[key]) for key, value in given if key in kinds}
    typed = [for_hydra(key, value, known, options) for key, value in given if key not in kinds]
    verb_file, schema_name = CONF / f"{verb}.yaml", f"{verb}_schema"
    if _STORED.get(schema_name) != (schema, chosen):  # to store a schema takes a third of the time here
        node = schema(**{key: kind() for key, kind in chosen.items()})
        ConfigStore.instance().store(name=schema_name, node=node)
        _STORED[schema_name] = schema, chosen
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            node = compose(verb if verb_file.exists() else schema_name, typed)
        return OmegaConf.to_object(node) if as_object else OmegaConf.to_container(node)
    except MissingMandatoryValue as error:
        key = _full_key(error)
        about = f" ({known[key].meaning})" if key in known and known[key].meaning else ""
        raise ConfigError(f"robo-rl {shown} needs {key}=...{about}. See: robo-rl {shown} --help") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explained(shown, error, typed, known)) from error


def _own_option(key: str, value: str, known: dict[str, Setting], options: dict[str, list[str]]) -> str:
    """Name of the option. `method=mine.yaml` registers the file as an option of that name in hydra.

    Raises ConfigError for a key that the group does not have.
    """
    if key not in options or not value.endswith((".yaml", ".yml")):
        return value
    from hydra.core.config_store import ConfigStore

    values, name = read_mapping(value), Path(value).stem
    for inner, _ in flat(values, key + "."):
        if inner not in known:
            hint = did_you_mean(inner, [each for each in known if each.startswith(key + ".")])
            raise ConfigError(f"{value} holds '{inner}', which is no setting of {key}.{hint}")
    if f"{key}.name" in known:
        values = {"name": name} | values
    option = f"{name}_of_a_file"  # a file residual.yaml must not hide the built-in option
    ConfigStore.instance().store(group=key, name=option, node=values)
    options[key] = [*options[key], option]
    return option


def _kind(key: str, value: str, kinds: dict[str, type]) -> type:
    if value not in kinds:
        raise UnknownNameError(key, value, kinds, advice=OWN if key == "net" else "")
    return kinds[value]


def _nested_value(tree: Any, key: str) -> Any:
    """A value in nested dicts; "" for a key that the chosen variant does not have."""
    for part in key.split("."):
        tree = tree.get(part, "") if isinstance(tree, dict) else ""
    return tree.get("name") if isinstance(tree, dict) else tree  # a variant is shown by its name


def _full_key(error: BaseException) -> str:
    """The dotted key that hydra or omegaconf names in its error, or an empty string."""
    if isinstance(full_key := getattr(error, "full_key", None), str):
        return full_key
    found = re.search(r"full_key: (\S+)", f"{error}\n{error.__cause__}")
    return found[1] if found else ""


def _explained(verb: str, error: Exception, overrides: list[str], known: dict[str, Setting]) -> str:
    given = dict(override.split("=", 1) for override in overrides)
    reason = " ".join(str(error.__cause__ or error).split())
    key = _full_key(error).split("[")[0]
    if key.isdecimal():  # omegaconf names the place alone of a number where a list of lists is expected
        key = next((name for name in given if name in known and known[name].type_words.startswith("[[")), "")
    if not key:  # a grammar error quotes the override instead of naming the key
        quoted = f"{error} {error.__cause__} {getattr(error, 'override', '')}"
        key = next((name for name, value in given.items() if f"{name}={value}" in quoted), "")
    if key not in given:
        return f"The settings of robo-rl {verb} cannot be used: {reason}"
    if re.search(r"Key '\w+' (not in|is not in struct)", reason):
        return f"{key}={given[key]} cannot be used: the {key.partition('.')[0]} chosen has no such setting."
    nothing = " or none" if known[key].optional else ""
    as_list = re.match(r"\[[^\[]", known[key].type_words) and not given[key].startswith("[")
    hint = f" Write {key}=[{given[key]}], with commas between several." if as_list else ""
    return f"{key}={given[key]} cannot be used, expected: {known[key].type_words}{nothing}.{hint}"


def _check_values(config: Any, known: dict[str, Setting]) -> None:
    if getattr(config, "resume", False) is True and getattr(config, "overwrite", False) is True:
        raise ConfigError(
            "resume=true continues the run in `out` and overwrite=true replaces it; give one of them."
        )
    for key, setting in known.items():
        value = config
        for part in key.split("."):
            value = getattr(value, part, None)
        means_something = not setting.optional or "empty:" in setting.meaning
        if value == "" and (
            setting.required or not means_something
        ):  # e.g. a variable of the shell is not set
            about = f" ({setting.meaning})" if setting.meaning else ""
            nothing = " or none" if setting.optional else ""
            raise ConfigError(f"{key}= is empty, expected: {setting.type_words}{nothing}{about}.")
        if setting.choices and isinstance(value, str) and value not in setting.choices:
            hint = did_you_mean(value, setting.choices)
            raise ConfigError(f"{key}={value} cannot be used, expected: {setting.type_words}.{hint}")
        if value is not None and not setting.allows(value):
            expected = f"{setting.type_words}{finite_words(value)}"
            raise ConfigError(f"{key}={value} cannot be used, expected: {expected}.")
