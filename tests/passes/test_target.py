"""Targets: presets, flags, files, deploy blocks, and this machine."""

from __future__ import annotations

import json
import os

import pytest

from omnic import target
from omnic.passes.base import target_of
from omnic.target import GIB, TargetError


def test_this_machine_has_its_memory_and_no_fixed_cores():
    made = target.load("cpu")
    assert (made.name, made.here, made.cores, made.gpus) == ("cpu", True, None, False)
    assert (
        0 < made.host.free_bytes <= made.host.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )


@pytest.mark.parametrize(
    ("spec", "name", "count"), [("h200", "h200", 1), ("gpu:h200*2", "h200 * 2", 2), ("H100", "h100", 1)]
)
def test_a_flag_names_a_preset_and_how_many(spec, name, count):
    made = target.load(spec)
    assert (made.name, len(made.devices), made.here) == (name, count, False)
    assert [d.name for d in made.devices] == [f"gpu{i}" for i in range(count)]


def test_every_preset_has_what_planning_needs():
    found = target.presets()
    assert {"h200", "h100", "a100-80", "l40s", "rtx4090"} <= set(found)
    for device in found.values():
        assert device.memory_bytes > 20 * GIB
        assert device.bandwidth > 1e11
        assert dict(device.rates)["bf16"] > 1e13
        assert device.origin


@pytest.mark.parametrize(
    ("text", "name", "devices"),
    [
        ("cpu", "cpu", 1),
        ('gpu("h200", count = 2, link = nvlink)', "h200 * 2", 2),
        ("gpu(memory = 24GiB, host_memory = 64GiB, pcie = 25GB/s)", "gpu 24 GiB", 1),
        ('hosts(2, gpu("h200", count = 4, link = nvlink), net = 400Gb/s)', "hosts(2, h200 * 4)", 8),
        ("h200", "h200", 1),
    ],
)
def test_a_deploy_block_writes_a_call(tmp_path, text, name, devices):
    made = target_of(text, tmp_path)
    assert (made.name, len(made.devices)) == (name, devices)


def test_a_call_carries_its_numbers(tmp_path):
    made = target_of("gpu(memory = 24GiB, host_memory = 64GiB, pcie = 25GB/s)", tmp_path)
    assert (made.devices[0].memory_bytes, made.host.memory_bytes, made.devices[0].link) == (24 * GIB, 64 * GIB, 25e9)
    spread = target_of('hosts(2, gpu("h200", count = 2), net = 400Gb/s)', tmp_path)
    assert [(k.kind, k.bandwidth) for k in spread.links if k.kind == "net"] == [("net", 5e10)]
    assert [d.host for d in spread.devices] == [0, 0, 1, 1]


def test_a_file_describes_a_machine(tmp_path):
    (tmp_path / "lab.json").write_text(
        json.dumps(
            {
                "host": {"memory_gib": 256, "free_gib": 200, "cores": 16},
                "devices": [{"preset": "h200", "free_gib": 20, "count": 2}, {"memory_gib": 24}],
                "links": [{"between": [0, 1], "kind": "nvlink", "gb_s": 450}],
            }
        )
    )
    made = target_of('"lab.json"', tmp_path)
    assert [(d.name, d.model, d.free_bytes // GIB) for d in made.devices] == [
        ("gpu0", "h200", 20), ("gpu1", "h200", 20), ("gpu2", "", 24),
    ]  # fmt: skip
    assert (made.name, made.cores, made.host.free_bytes) == ("lab", 16, 200 * GIB)
    assert made.links[0].bandwidth == 450e9


def test_a_file_without_devices_is_a_host(tmp_path):
    (tmp_path / "laptop.json").write_text('{"host": {"memory_gib": 16, "cores": 4}}')
    made = target.load(str(tmp_path / "laptop.json"))
    assert (made.gpus, made.cores, made.devices[0].memory_bytes, made.here) == (False, 4, 16 * GIB, False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "x.json must be a JSON object"),
        ("{}", "x.json needs devices, or a host with `memory_gib`"),
        ('{"hosts": {}}', "x.json has no field `hosts`"),
        ('{"devices": [{}]}', "x.json, device 0 needs `preset` or `memory_gib`"),
        ('{"devices": [{"preset": "h2000"}]}', "unknown GPU `h2000`"),
        ('{"devices": [{"memory_gib": "80"}]}', 'x.json, device 0: `memory_gib` must be a number from 0, not "80"'),
        ('{"devices": [{"memory_gib": 80, "fre_gib": 1}]}', "x.json, device 0 has no field `fre_gib`"),
        (
            '{"devices": [{"memory_gib": 8}], "links": [{"between": [0, 1], "kind": "pcie"}]}',
            "must be two device numbers",
        ),
        ('{"host": {"memory_gib": 8, "cores": 0}}', "`cores` must be a whole number from 1, not 0"),
        ('{"host": 3}', "x.json, host must be a JSON object"),
        ('{"host": {"memory_gib": NaN}}', "x.json, host: `memory_gib` must be a number from 0, not NaN"),
        ('{"host": {"memory_gib": 1e999}}', "must be a number from 0, not Infinity"),
        ('{"host": {"memory_gib": 8, "free_gib": 16}}', "x.json, host: `free_gib` is 16, more than the 8 there are"),
        ('{"devices": [{"memory_gib": 8, "free_gib": 9}]}', "x.json, device 0: `free_gib` is 9, more than the 8"),
        ('{"name": ["x"], "host": {"memory_gib": 8}}', 'x.json: `name` must be a text, not ["x"]'),
        ('{"devices": 3}', "x.json: `devices` must be a list, not 3"),
        ('{"devices": [{"preset": ["h200"]}]}', 'x.json, device 0: `preset` must be a text, not ["h200"]'),
        ('{"devices": [{"memory_gib": 8, "arch": 90}]}', "x.json, device 0: `arch` must be a text, not 90"),
        ('{"devices": [{"memory_gib": 8, "count": 2000}]}', "`count` must be a whole number in 1..1024, not 2000"),
        ('{"devices": [{"memory_gib": 8}], "links": 3}', "x.json: `links` must be a list, not 3"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path, content, message):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(TargetError) as error:
        target.load(str(tmp_path / "x.json"))
    assert message in error.value.message


def test_every_rate_a_file_states_is_kept(tmp_path):
    (tmp_path / "x.json").write_text('{"devices": [{"memory_gib": 8, "bf16_tflops": 20, "fp32_tflops": 10}]}')
    assert dict(target.load(str(tmp_path / "x.json")).devices[0].rates) == {"bf16": 2e13, "fp32": 1e13}


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        ("h2000", "unknown GPU `h2000`", "did you mean `h200`?"),
        ("a b c", "`a b c` is not a target", "write cpu, gpu:h200*2, or the path of a JSON file"),
        ('gpu("h200", cuont = 2)', "`gpu` has no option `cuont`", "did you mean `count`?"),
        ("gpu()", "a GPU needs a name or its memory", '`gpu("h200")` or `gpu(memory = 24GiB)`'),
        ('gpu("l4", link = nvlink)', "`l4` has no nvlink", "`link = pcie`"),
        ('gpu("l4", count = 0)', "`count` must be a whole number in 1..1024, not 0", None),
        ('gpu("h200", count = 2.0)', "`count` must be a whole number in 1..1024, not 2.0", None),
        ('gpu("h200", link = ethernet)', "`link` must be nvlink or pcie, not ethernet", None),
        ('gpu(memory = "x")', '`memory` must be a quantity such as 24GiB, not "x"', None),
        ("gpu(memory = 24)", "`memory` must be a quantity such as 24GiB, not 24", None),
        ("gpu(memory = 24kHz)", "`memory` must be a quantity such as 24GiB, not 24kHz", None),
        ("gpu(memory = 0GiB)", "`memory` must be a quantity such as 24GiB, not 0GiB", None),
        ('gpu("h200", pcie = 25GiB)', "`pcie` must be a quantity such as 64GB/s, not 25GiB", None),
        ("gpu(4)", '`model` must be the name of a GPU, such as "h200", not 4', None),
        ("hosts(2, 3)", "`hosts` takes a number and what each host has", '`hosts(2, gpu("h200", count = 4))`'),
        ("hosts(2, cpu)", "`hosts` takes a number and what each host has", '`hosts(2, gpu("h200", count = 4))`'),
        ("tpu(4)", "`tpu` makes no target", "targets are cpu, gpu, hosts, or a file"),
        ('gpu("h200", "l4")', "`gpu` does not take these arguments", None),
    ],
)
def test_what_is_no_target_is_said(tmp_path, text, message, help):
    with pytest.raises(TargetError) as error:
        target_of(text, tmp_path)
    assert error.value.message == message
    assert help is None or error.value.help == help


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2,3,4,6", ("2", "3")),
        ("7, 0", ("7", "0")),
        ("", None),
        ("-1", None),
        ("GPU-1a2b,GPU-3c4d", ("GPU-1a2b", "GPU-3c4d")),
    ],
)
def test_logical_devices_map_through_the_visible_list(visible, expected):
    assert target.visible(target.load("h200*2"), {"CUDA_VISIBLE_DEVICES": visible}) == expected


def test_too_few_visible_devices_are_refused_by_number():
    with pytest.raises(TargetError, match="target `h200 \\* 4` requires 4 devices, 2 visible"):
        target.visible(target.load("h200*4"), {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert target.visible(target.load("cpu"), {"CUDA_VISIBLE_DEVICES": "2"}) is None


@pytest.mark.parametrize(("n", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (GIB, "1 GiB"), (int(62.74 * GIB), "62.7 GiB")])
def test_bytes_for_people(n, text):
    assert target.memory_text(n) == text
