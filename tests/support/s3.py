"""An S3 server in this process (moto), its environment, and a bucket of its own for each test.

S3 creates an object under a condition as one act. moto looks first and writes later, so that now and then several
writers of one key succeed. Here a lock makes it one act.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import boto3
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from ground.remote import ENDPOINT


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server that runs during the block; all servers of a process share their buckets."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    lock, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with lock:
            return put_object(response)

    with patch.object(S3Response, "put_object", put_alone):
        server.start()
        try:
            yield "http://{}:{}".format(*server.get_host_and_port())
        finally:
            server.stop()


def s3_environment(endpoint: str) -> dict[str, str]:
    """The variables that a client needs."""
    return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", ENDPOINT: endpoint}


def s3_bucket(endpoint: str) -> str:
    """The address of a new, empty bucket."""
    name = f"b{uuid.uuid4().hex[:20]}"
    _client(endpoint).create_bucket(Bucket=name)
    return f"s3://{name}"


def upload_in_parts(endpoint: str, url: str, content: bytes) -> None:
    """Write an object (``s3://bucket/key``) as large ones are written: its entity tag is then not the md5."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    client, where = _client(endpoint), {"Bucket": bucket, "Key": key}
    upload = client.create_multipart_upload(**where)["UploadId"]
    part = client.upload_part(**where, UploadId=upload, PartNumber=1, Body=content)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=parts)


def _client(endpoint: str) -> Any:
    return boto3.session.Session("key", "secret").client("s3", endpoint_url=endpoint, region_name="us-east-1")
