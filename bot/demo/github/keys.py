"""What does an App sign with? RSA keys in PEM, as GitHub hands them out."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def private_key() -> str:
    """Make a private key as GitHub hands it out: RSA, 2048 bits, PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def public_key(private_pem: str) -> str:
    """Return the public half of a private key, both PEM."""
    # Proving that the numbers are prime takes longer than all else, and these keys are ours.
    key = serialization.load_pem_private_key(
        private_pem.encode(), password=None, unsafe_skip_rsa_key_validation=True
    )
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
