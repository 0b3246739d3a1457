"""The driver of object stores: S3, Google Cloud Storage, Azure, and directories."""
