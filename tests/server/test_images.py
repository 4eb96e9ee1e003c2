"""Pictures over HTTP: generated and edited, whole, as addresses and as events, by OpenAI's own client and by others."""

from __future__ import annotations

import base64
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import psutil
import pytest
from PIL import Image

from omnic.expr import Size
from omnic.runtime.fake import ARGUMENTS
from omnic.runtime.fake_visual import drawn
from omnic.runtime.picture_files import encode
from tests.contract import visual_bodies as bodies
from tests.painter import painter
from tests.server.drawing import EDITS, GENERATIONS, events, make, pixels
from tests.server.running import Server
from tests.server.test_http import encodable, error_of

FOX = {"prompt": "a fox", "seed": 7}
PHOTO = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
FILE = encode(PHOTO, "png")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(make(tmp_path_factory.mktemp("painter"), painter(), step_seconds=0.002)) as running:
        yield running.ready()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def told(**given: Any) -> dict[str, Any]:
    """What the fake stage is told of a request for a fox."""
    return {"prompt": "a fox", **given}


# --- whole ------------------------------------------------------------------------------------------------------------


def test_a_picture_is_the_one_that_the_pipeline_draws(client: openai.OpenAI) -> None:
    answer = client.images.generate(prompt="a fox", size="256x256", extra_body={"seed": 7, "num_inference_steps": 6})
    assert answer.data is not None
    [entry] = answer.data
    assert (pixels(entry.b64_json or "") == drawn(7, told(size=Size(256, 256), steps=6))).all()
    assert (entry.url, answer.size, answer.output_format, answer.background) == (None, "256x256", "png", "opaque")
    assert abs(answer.created - time.time()) < 60


def test_n_pictures_have_seeds_in_a_row(server: Server) -> None:
    answer = server.post(GENERATIONS, FOX | {"n": 3})
    assert answer.headers["x-omnic-seed"] == "7"
    for index, entry in enumerate(answer.json()["data"]):
        assert (pixels(entry["b64_json"]) == drawn(7 + index, told())).all()


def test_a_request_without_a_seed_can_be_repeated_by_the_one_it_was_told(server: Server) -> None:
    first = server.post(GENERATIONS, {"prompt": "a fox"})
    again = server.post(GENERATIONS, {"prompt": "a fox", "seed": int(first.headers["x-omnic-seed"])})
    assert first.json()["data"] == again.json()["data"]


def test_a_request_leaves_nothing_behind_for_the_next(server: Server) -> None:
    first, other, again = (server.post(GENERATIONS, FOX | {"prompt": p}).json()["data"] for p in ("a", "b", "a"))
    assert first == again != other


@pytest.mark.parametrize(("format", "mark"), [("png", b"\x89PNG"), ("jpeg", b"\xff\xd8"), ("webp", b"RIFF")])
def test_formats(client: openai.OpenAI, format: Any, mark: bytes) -> None:
    answer = client.images.generate(prompt="a fox", output_format=format, output_compression=100)
    assert answer.data is not None
    assert base64.b64decode(answer.data[0].b64_json or "").startswith(mark)
    assert answer.output_format == format


def test_compression_makes_a_smaller_file(server: Server) -> None:
    body = FOX | {"output_format": "jpeg", "size": "256x256"}
    files = [server.post(GENERATIONS, body | {"output_compression": q}).json()["data"][0]["b64_json"] for q in (10, 90)]
    assert len(files[0]) < len(files[1])


def test_what_stages_are_told(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(
            prompt=ARGUMENTS,
            size="auto",
            quality="auto",
            extra_body={"guidance": 2, "negative_prompt": "blur", "seed": 5},
        )
    assert isinstance(caught.value.body, dict)
    assert json.loads(caught.value.body["message"]) == {
        "prompt": ARGUMENTS, "seed": 5, "guidance_scale": "2.0", "negative": "blur",
    }  # fmt: skip


# --- addresses --------------------------------------------------------------------------------------------------------


def test_a_picture_by_address_can_be_fetched(server: Server, client: openai.OpenAI) -> None:
    answer = client.images.generate(prompt="a fox", response_format="url", output_format="webp", extra_body={"seed": 7})
    assert answer.data is not None
    [entry] = answer.data
    assert entry.b64_json is None
    assert entry.url is not None
    assert entry.url.startswith(f"{server.url}/v1/images/files/")
    fetched = server.client.get(entry.url)
    assert (fetched.status_code, fetched.headers["content-type"]) == (200, "image/webp")
    whole = server.post(GENERATIONS, FOX | {"output_format": "webp"}).json()["data"][0]["b64_json"]
    assert base64.b64encode(fetched.content).decode() == whole


@pytest.mark.parametrize("name", ["nothing.png", "..", "%2e%2e%2fpipeline.py", "a" * 500, "x/y.png"])
def test_no_other_file_can_be_fetched(server: Server, name: str) -> None:
    error_of(server.get(f"/v1/images/files/{name}"), 404)


# --- events -----------------------------------------------------------------------------------------------------------


def test_progress_partial_pictures_and_the_picture(server: Server) -> None:
    body = FOX | {"stream": True, "partial_images": 2, "num_inference_steps": 9}
    with server.streaming(GENERATIONS, body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = list(events(response.iter_lines()))
    names = [each["type"].removeprefix("image_generation.") for each in found]
    assert names[-1] == "completed"
    taken = [(e["step"], e["steps"], e["stage"]) for e in found if e["type"].endswith("progress")]
    assert taken == sorted(taken)
    assert taken[-1] == (9, 9, "paint")
    partial = [e["partial_image_index"] for e in found if e["type"].endswith("partial_image")]
    assert partial == [0, 1]
    assert (pixels(found[-1]["b64_json"]) == drawn(7, told(steps=9))).all()
    assert found[-1]["usage"]["total_tokens"] == 0


def test_openai_s_client_reads_the_events(client: openai.OpenAI) -> None:
    stream = client.images.generate(prompt="a fox", stream=True, partial_images=1, extra_body={"seed": 7})
    found = list(stream)
    assert found[-1].type == "image_generation.completed"
    assert (pixels(found[-1].b64_json) == drawn(7, told())).all()
    assert [e.partial_image_index for e in found if e.type == "image_generation.partial_image"] == [0]


def test_several_pictures_in_one_stream(server: Server) -> None:
    with server.streaming(EDITS, FOX | {"stream": True, "n": 2, "image": bodies.PICTURE}) as response:
        done = {e["index"]: e for e in events(response.iter_lines()) if e["type"] == "image_edit.completed"}
    assert done.keys() == {0, 1}
    assert done[0]["b64_json"] != done[1]["b64_json"]


# --- forms ------------------------------------------------------------------------------------------------------------


def edit(server: Server, files: Any, **fields: Any) -> httpx.Response:
    return server.client.post(f"{server.url}{EDITS}", data={"prompt": "a fox", "seed": "7"} | fields, files=files)


@pytest.mark.parametrize("name", ["image", "image[]", "image[0]"])
def test_one_picture_under_every_name_that_clients_use(server: Server, name: str) -> None:
    answer = edit(server, [(name, ("fox.png", FILE, "image/png"))])
    assert answer.status_code == 200, answer.text
    assert (pixels(answer.json()["data"][0]["b64_json"]) == drawn(7, told(photo=PHOTO))).all()


@pytest.mark.parametrize("names", [("image", "image"), ("image[]", "image[]"), ("image[0]", "image[1]")])
def test_two_pictures_under_every_name_that_clients_use(server: Server, names: tuple[str, str]) -> None:
    answer = edit(server, [(name, ("fox.png", FILE)) for name in names])
    assert answer.status_code == 200, answer.text
    assert (pixels(answer.json()["data"][0]["b64_json"]) == drawn(7, told(photo=PHOTO, second=PHOTO))).all()


@pytest.mark.parametrize("count", [1, 2])
def test_openai_s_client_edits_one_picture_and_several(client: openai.OpenAI, count: int) -> None:
    files = [io.BytesIO(FILE) for _ in range(count)]
    for index, file in enumerate(files):
        file.name = f"{index}.png"
    answer = client.images.edit(
        image=files[0] if count == 1 else files,
        prompt="a fox",
        size="256x256",
        n=1,
        extra_body={"seed": 7, "strength": 0.5},
    )
    assert answer.data is not None
    expected = told(photo=PHOTO, size=Size(256, 256), strength=0.5) | ({"second": PHOTO} if count == 2 else {})
    assert (pixels(answer.data[0].b64_json or "") == drawn(7, expected)).all()


def test_a_mask_under_both_names_that_clients_use(server: Server) -> None:
    answers = [edit(server, [("image", ("a.png", FILE)), (name, ("m.png", FILE))]) for name in ("mask", "mask[]")]
    found = [
        (pixels(a.json()["data"][0]["b64_json"]) == drawn(7, told(photo=PHOTO, mask=PHOTO))).all() for a in answers
    ]
    assert found == [True, True]


def test_a_mask_keeps_its_alpha_channel(client: openai.OpenAI) -> None:
    mask = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    file = io.BytesIO()
    mask.save(file, "PNG")
    answer = client.images.edit(
        image=("fox.png", FILE), mask=("mask.png", file.getvalue()), prompt="a fox", extra_body={"seed": 7}
    )
    assert answer.data is not None
    expected = drawn(7, told(photo=PHOTO, mask=np.zeros((30, 40, 4), np.uint8)))
    assert (pixels(answer.data[0].b64_json or "") == expected).all()


def test_a_picture_as_a_data_url(server: Server) -> None:
    answer = server.post(EDITS, FOX | {"image": bodies.data_url(FILE)})
    assert (pixels(answer.json()["data"][0]["b64_json"]) == drawn(7, told(photo=PHOTO))).all()


def test_an_answer_describes_its_own_request_s_picture(server: Server) -> None:
    other = encode(255 - PHOTO, "png")
    first, second, again = (
        edit(server, [("image", ("a.png", data))]).json()["data"][0]["b64_json"] for data in (FILE, other, FILE)
    )
    assert first == again != second


def open_files(server: Server) -> int:
    """Files without a name that the server holds open: uploads too large for memory."""
    found = 0
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found += str(link.readlink()).endswith("(deleted)")
    return found


def wait_for_open_files(server: Server, count: int) -> None:
    until = time.monotonic() + 10
    while (found := open_files(server)) != count:
        assert time.monotonic() < until, f"{found} files are open"
        time.sleep(0.02)


def test_uploads_are_gone_whatever_became_of_them(server: Server) -> None:
    large = encode(np.random.default_rng(1).integers(0, 256, (250, 260, 3), dtype=np.uint8), "png") + bytes(2 << 20)
    before = open_files(server)
    files = [("image", ("a.png", large))]
    assert edit(server, files).status_code == 200
    assert edit(server, files, n="0").status_code == 400
    assert edit(server, [*files, ("other", ("b", b"x"))]).status_code == 400
    assert edit(server, [("image", ("a.png", b"x" * (3 << 20)))]).status_code == 400
    assert edit(server, files, prompt="!raise").status_code == 500
    assert edit(server, files, stream="true").status_code == 200
    form = {"prompt": "a fox", "stream": "true", "num_inference_steps": "100"}
    with server.client.stream("POST", f"{server.url}{EDITS}", data=form, files=files) as response:
        next(response.iter_lines())
    wait_for_open_files(server, before)


def test_an_upload_that_breaks_off_is_gone(server: Server) -> None:
    before = open_files(server)
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"POST {EDITS} HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=x\r\ncontent-length: 9000000"
    )
    part = '--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\n'
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}\r\n\r\n{part}".encode() + bytes(3 << 20))
        wait_for_open_files(server, before + 1)
    wait_for_open_files(server, before)
    answer = server.client.post(
        f"{server.url}{EDITS}", content=part.encode() + bytes(2 << 20),
        headers={"content-type": "multipart/form-data; boundary=x"},
    )  # fmt: skip
    error_of(answer, 400)
    wait_for_open_files(server, before)


FORMS = {
    "no boundary": ("multipart/form-data", b"--x--"),
    "no form": ("multipart/form-data; boundary=x", b"hello"),
    "nothing": ("multipart/form-data; boundary=x", b""),
    "a part without a name": ("multipart/form-data; boundary=x", b"--x\r\n\r\nhello\r\n--x--"),
    "a part of no form": (
        "multipart/form-data; boundary=x",
        b"--x\r\ncontent-disposition: form-data\r\n\r\na\r\n--x--",
    ),
    "many parts": (
        "multipart/form-data; boundary=x",
        b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\na\r\n' * 100 + b"--x--",
    ),
    "a long part": (
        "multipart/form-data; boundary=x",
        b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\n' + b"a" * (2 << 20) + b"\r\n--x--",
    ),
    "an unknown charset": (
        "multipart/form-data; boundary=x; charset=nonsense",
        b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\n\xff\xfe\r\n--x--',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_is_no_form_is_400(server: Server, name: str) -> None:
    kind, content = FORMS[name]
    error_of(server.client.post(f"{server.url}{EDITS}", content=content, headers={"content-type": kind}), 400)


HEAD, TAIL = b'--x\r\ncontent-disposition: form-data; name="', b'"\r\n\r\n'


@pytest.mark.parametrize(
    ("charset", "text", "why"),
    [("", b"\xff\xfe", "UTF-8"), ("; charset=undefined", b"\xff", "UTF-8"), ("; charset=punycode", b"\xff", "UTF-8"),
     ("", b"a fox\r\n" + HEAD + b"n" + TAIL + b"2", "breaks off")],
)  # fmt: skip
def test_no_form_is_read_in_part_or_by_guess(server: Server, charset: str, text: bytes, why: str) -> None:
    content = HEAD + b"prompt" + TAIL + text + (b"" if why == "breaks off" else b"\r\n--x--")
    headers = {"content-type": f"multipart/form-data; boundary=x{charset}"}
    assert why in error_of(server.client.post(f"{server.url}{EDITS}", content=content, headers=headers), 400)["message"]


def test_texts_of_a_form_are_in_utf_8(server: Server) -> None:
    content = HEAD + b"prompt" + TAIL + "zwölf Füchse 🦊".encode() + b"\r\n"
    content += HEAD + "größe".encode() + TAIL + b"1\r\n--x--"
    answer = server.client.post(
        f"{server.url}{EDITS}", content=content, headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert error_of(answer, 400)["message"].startswith("unknown field `größe`")


def test_a_form_is_not_for_generations(server: Server) -> None:
    answer = server.client.post(f"{server.url}{GENERATIONS}", data={"prompt": "a fox"}, files={"a": b""})
    error_of(answer, 415)


def test_an_upload_beyond_the_limit_is_413(server: Server) -> None:
    head = b'--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\n'
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        yield head
        while sent < (80 << 20):
            sent += 1 << 20
            yield bytes(1 << 20)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    try:
        error_of(server.client.post(f"{server.url}{EDITS}", content=body(), headers=headers), 413)
    except httpx.WriteError:
        assert sent >= 64 << 20  # the server hung up on what it would not read


# --- outside the contract ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, (body, _) in bodies.BAD_GENERATIONS.items() if encodable(body)])
def test_a_bad_body_of_generations_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_GENERATIONS[name]
    assert error_of(server.post(GENERATIONS, body), 400)["param"] == field


@pytest.mark.parametrize("name", [n for n, (body, _) in bodies.BAD_EDITS.items() if encodable(body)])
def test_a_bad_body_of_edits_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_EDITS[name]
    assert error_of(server.post(EDITS, body), 400)["param"] == field


@pytest.mark.parametrize("name", bodies.BAD_PICTURES)
def test_a_bad_picture_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_PICTURES[name]
    assert error_of(server.post(EDITS, body), 400)["param"] == field


FINE_AS_TEXT = {"prompt a number", "a user that is a number", "model a number"}  # in a form every value is a text


def sayable(name: str) -> bool:
    """Whether a bad body can be said in a form that carries a picture."""
    body, _ = bodies.BAD_EDITS[name]
    scalars = isinstance(body, dict) and all(isinstance(v, str | int | float) for v in body.values())
    return scalars and body.get("image") == bodies.PICTURE and name not in FINE_AS_TEXT and encodable(body)


@pytest.mark.parametrize("name", [*filter(sayable, bodies.BAD_EDITS)])
def test_a_bad_form_of_edits_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_EDITS[name]
    said = {k: v if isinstance(v, str) else json.dumps(v) for k, v in body.items() if k != "image"}
    answer = server.client.post(f"{server.url}{EDITS}", data=said, files=[("image", ("fox.png", FILE))])
    assert error_of(answer, 400)["param"] == field


@pytest.mark.parametrize("size", ["100000x10000", "0x0", "-8x8", "abc", "513x512"])
def test_a_size_that_cannot_be_is_refused_at_once_and_takes_no_memory(server: Server, size: str) -> None:
    processes = psutil.Process(server.process.pid), server.worker
    before = [p.memory_info().rss for p in processes]
    began = time.monotonic()
    for path in (GENERATIONS, EDITS):
        error_of(
            server.post(path, FOX | {"size": size, "image": bodies.PICTURE} if path == EDITS else FOX | {"size": size}),
            400,
        )
    assert time.monotonic() - began < 1
    after = [p.memory_info().rss for p in processes]
    assert all(b - a < 50 << 20 for a, b in zip(before, after, strict=True))


def test_a_picture_that_unpacks_to_too_much_takes_no_memory(server: Server) -> None:
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    error_of(edit(server, [("image", ("bomb.png", bomb.getvalue()))]), 400)
    assert process.memory_info().rss - before < 50 << 20


@pytest.mark.parametrize("path", [GENERATIONS, EDITS])
def test_another_model_is_404(server: Server, path: str) -> None:
    body = FOX | {"model": "dall-e-3"} | ({"image": bodies.PICTURE} if path == EDITS else {})
    assert error_of(server.post(path, body), 404)["code"] == "model_not_found"
    assert server.post(path, body | {"model": "painter"}).status_code == 200


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "status", "code"),
    [("!request", 400, "context_length_exceeded"), ("!raise", 500, "stage_failed"), ("!memory", 503, "stage_failed")],
)
def test_a_fault_of_a_stage(server: Server, word: str, status: int, code: str) -> None:
    assert error_of(server.post(GENERATIONS, {"prompt": word}), status)["code"] == code
    assert server.post(GENERATIONS, FOX).status_code == 200


def test_openai_s_client_raises_its_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.images.generate(prompt=" ")
    with pytest.raises(openai.NotFoundError):
        client.images.generate(prompt="a fox", model="dall-e-3")
    with pytest.raises(openai.InternalServerError):
        client.images.generate(prompt="!raise")
    with pytest.raises(openai.APIError):
        list(client.images.generate(prompt="!raise", stream=True, extra_body={"num_inference_steps": 50}))


def test_a_fault_in_a_stream_is_an_event(server: Server) -> None:
    with server.streaming(GENERATIONS, {"prompt": "!raise", "stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-2] == "event: error"
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "stage_failed"


def test_what_is_counted(server: Server) -> None:
    def counts() -> dict[tuple[str, ...], float]:
        return server.metrics()

    before = counts()
    server.post(GENERATIONS, FOX | {"n": 2, "steps": 5})
    server.post(GENERATIONS, FOX | {"n": 0})
    after = counts()

    def more(*key: str) -> float:
        return after[key] - before.get(key, 0.0)

    assert more("omnic_pictures_total", "images.generations") == 2
    assert more("omnic_steps_total", "paint") == more("omnic_stage_items_total", "paint") == 10
    assert more("omnic_step_seconds_count", "paint") == more("omnic_stage_request_seconds_count", "paint") == 2
    assert more("omnic_requests_total", "images.generations", "completed") == 1
    assert more("omnic_requests_total", "images.generations", "invalid") == 1
    assert more("omnic_first_image_seconds_count", "images.generations") == 1
    assert more("omnic_stage_request_seconds_sum", "paint") <= 2 * more(
        "omnic_request_seconds_sum", "images.generations"
    )
