"""Speaks with a judge: a program that answers each line of JSON on its standard input with one on its standard output."""

import json
import subprocess
from pathlib import Path
from typing import Any, Self


class Judge:
    """A running program; a context manager, for the program ends with it."""

    def __init__(self, program: Path | str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, question: Any) -> Any:
        """The answer; RuntimeError when the program ended instead, whose own words are on standard error."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()} at {question}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)
