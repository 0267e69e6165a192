"""What Python knows of strategies and policies comes from the registry: adding one touches nothing here."""

import ast
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path

import hotset
import pytest
from hotset import _core

STRATEGIES = {each.name: each for each in _core.strategies()}
DEFAULT = inspect.signature(hotset.Sampler).parameters["strategy"].default


def _literals(source: str) -> Iterator[tuple[int, str]]:
    """The text constants of a module that are not documentation, with their lines."""
    tree = ast.parse(source)
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_no_module_knows_a_strategy_or_a_policy_by_its_name() -> None:
    names = {*STRATEGIES, *(name for name, _ in _core.policies())} - {DEFAULT}
    package = Path(hotset.__file__).parent
    found = [
        f"{path.relative_to(package)}:{line}: {text!r}"
        for path in sorted(package.rglob("*.py"))
        for line, text in _literals(path.read_text())
        if text in names or any(f"`{name}`" in text for name in names)
    ]
    assert found == []


def test_literals_are_found_where_they_are_no_documentation() -> None:
    source = '"""`iis`"""\nNAMES = ("iis",)\n"""`pads`"""\ntext = f"use `hybrid` in {NAMES}"\n'
    assert [text for _, text in _literals(source)] == ["iis", "use `hybrid` in "]


def test_the_default_strategy_is_the_one_that_needs_nothing() -> None:
    default = STRATEGIES[DEFAULT]
    assert default.follows_seed and default.is_whole and not default.needs_losses


def test_one_strategy_takes_the_order_of_a_trainer() -> None:
    (given,) = [each for each in STRATEGIES.values() if each.takes_order]
    assert not given.follows_seed and not given.is_whole and not given.needs_losses
    assert pickle.loads(pickle.dumps(given)).name == given.name


def test_one_strategy_has_the_order_of_the_dataset() -> None:
    (plain,) = [each for each in STRATEGIES.values() if not each.shuffles]
    assert plain.follows_seed and plain.is_whole and not plain.needs_losses


def test_facts_follow_from_settings() -> None:
    assert not _core.Strategy("carousel").needs_losses
    assert _core.Strategy("carousel", [("ride", "hard")]).needs_losses
    iis = _core.Strategy("iis", [("fraction", "0.5"), ("warmup", "3"), ("full_last", "0.2")], 10)
    assert [iis.may_be_full(epoch) for epoch in range(10)] == [True] * 3 + [False] * 5 + [True] * 2
    assert iis.selected(1000) == 500


@pytest.mark.parametrize(
    "name", [name for name, each in STRATEGIES.items() if each.shuffles and not each.takes_order]
)
def test_a_strategy_can_be_pickled_with_its_settings(name: str) -> None:
    again = pickle.loads(pickle.dumps(_core.Strategy(name, [("full_last", "0.5")], 4)))
    assert (again.name, again.may_be_full(3)) == (name, True)


def test_a_strategy_refuses_a_name_or_a_setting_that_is_none() -> None:
    with pytest.raises(hotset.InvalidError, match="strategy `shuffle` is unknown"):
        _core.Strategy("shuffle")
    with pytest.raises(hotset.InvalidError, match="fraction"):
        _core.Strategy("iis", [("fraction", "2")])
