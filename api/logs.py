"""How our programs write their logs: one line for each event, on stderr."""

import logging
import sys
from typing import TextIO

import structlog


def configure(log_format: str, level: str, *, stream: TextIO | None = None) -> None:
    """Set structlog up: `json` for machines, `console` for people, `auto` for console where the stream is a terminal; `level`
    is debug, info, warning or error.

    The event is under `event`, the time under `time` (RFC 3339, UTC). Bound context variables appear in every line.
    """
    out = stream if stream is not None else sys.stderr
    ending: tuple[structlog.typing.Processor, ...]
    if log_format == "json" or (log_format == "auto" and not out.isatty()):
        # Without variables: one of them may be a token.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        ending = (
            structlog.processors.ExceptionRenderer(tracebacks),
            structlog.processors.JSONRenderer(ensure_ascii=False),
        )
    else:
        plain = structlog.dev.plain_traceback
        ending = (structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain, timestamp_key="time"),)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
