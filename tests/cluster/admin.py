"""Asks the servers of a test cluster over HTTP with the admin's certificate, quicker than kubectl would."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 10.0
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Admin:
    """The holder of the `admin` certificate in `pki`; also the kubelet lets it in."""

    pki: Path

    def get(self, url: str, seconds: float = ANSWER_SECONDS) -> Any:
        """The JSON answer to a GET; HTTPError and URLError as urllib has them."""
        with self._opener().open(url, timeout=seconds) as answer:
            return json.load(answer)

    def found(self, url: str) -> Any:
        """The JSON answer to a GET, or None while there is none."""
        try:
            return self.get(url, PROBE_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except OSError:
            return None

    def is_answered(self, url: str) -> bool:
        """Whether a GET succeeds, whatever the answer holds."""
        try:
            with self._opener().open(url, timeout=PROBE_SECONDS):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self.pki / "ca.crt")
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        no_proxies = urllib.request.ProxyHandler({})  # the addresses are this machine's
        return urllib.request.build_opener(no_proxies, urllib.request.HTTPSHandler(context=context))
