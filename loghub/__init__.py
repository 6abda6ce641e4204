"""What the products share: the domain, the wire, the client and the contract with a worker."""

__version__ = "0.1.0"
