"""TLS from two files that are replaced while the service runs, as cert-manager and the kubelet do.

A new pair of files is loaded into a context of its own and takes effect only if it is complete and fits, so
that an incomplete rotation never breaks the handshakes. Connections that are open keep what they began with.
"""

import ssl

from loghub.service.faults import ServiceFault
from loghub.service.file_stamps import file_stamps


class BadCertificate(ServiceFault):
    """The certificate or its key cannot be used; the message names the files."""


class ServerTls:
    """The TLS context of a listener. Call `refresh` periodically and off the event loop.

    ``problem`` says why the files could not be used at the last `refresh`; "" if they could. Raises
    BadCertificate.
    """

    def __init__(self, certificate: str, key: str) -> None:
        self.problem = ""
        self._certificate = certificate
        self._key = key
        self._stamp = file_stamps(self._certificate, self._key)
        self._current = self._load()
        # OpenSSL calls it for every handshake, also if the client sends no server name.
        self.context = self._load()
        self.context.sni_callback = self._use_current

    def refresh(self) -> bool:
        """Load the files again if they changed; True if new handshakes use them."""
        stamp = file_stamps(self._certificate, self._key)
        if stamp == self._stamp and not self.problem:
            return False
        try:
            self._current = self._load()
        except BadCertificate as error:
            self.problem = str(error)
            return False
        self._stamp, self.problem = stamp, ""
        return True

    def _use_current(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # The empty password makes OpenSSL refuse an encrypted key instead of asking a terminal for one.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = f"{type(error).__name__}: {error}"
            raise BadCertificate(f"TLS with {self._certificate} and {self._key}: {reason}") from error
        return context
