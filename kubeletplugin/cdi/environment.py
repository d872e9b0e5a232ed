"""How a container is told which devices it got.

Each device speaks in variables of its own name, so that two claims meeting in one container add up instead of the later
one replacing the earlier: a runtime keeps one value for each variable.
"""

PREFIX = "LANEWISE_DEVICE_"


def variable(device: str) -> str:
    """`LANEWISE_DEVICE_GPU_65_00_0` for `gpu-65-00-0`. Device names are DNS labels, so no two make the same variable."""
    return PREFIX + device.upper().replace("-", "_")


def of_device(device: str, *, uuid: str, product: str | None = None) -> tuple[str, ...]:
    """`<variable>=<uuid>`, and `<variable>_PRODUCT=<product name>` where it is known.

    The same device in two claims says the same twice. Values are one line of printable text, whatever the driver returned.
    """
    name = variable(device)
    env = [f"{name}={_line(uuid)}"]
    if product is not None and (text := _line(product)):
        env.append(f"{name}_PRODUCT={text}")
    return tuple(env)


def _line(text: str) -> str:
    """What a shell that reads it line by line, or the CDI file, could trip over becomes a space."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(text.split())
