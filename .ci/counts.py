"""Counts of pytest's reports: of a run, and of a second one of what failed in the first.

    counts.py [--failed] FIRST [SECOND]

`--failed` prints only how many failed. The exit code is 1 where one failed, or nothing passed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as tree


def cases(report: str) -> dict[str, str]:
    """The outcome of each test. One whose fixtures failed after it stands twice, and has failed."""
    found: dict[str, str] = {}
    for case in tree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[name] = "failed" if found.get(name) == "failed" else outcome
    return found


def main() -> int:
    """Prints the counts."""
    only_failed = sys.argv[1] == "--failed"
    first, *second = sys.argv[1 + only_failed :]
    outcomes = cases(first)
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    if only_failed:
        print(len(failed))
        return 0
    for report in second:
        # What is skipped then has not passed.
        outcomes |= {name: outcome for name, outcome in cases(report).items() if outcome == "passed"}
    counted = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {kind}" for kind, count in counted.items()), end="")
    mended = [name for name in failed if outcomes[name] == "passed"]
    print(f" ({len(mended)} of them when tried again, alone: {', '.join(mended)})" if mended else "")
    return int(counted["passed"] == 0 or counted["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
