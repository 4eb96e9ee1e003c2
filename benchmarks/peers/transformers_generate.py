"""transformers' `generate` as a process of its own, with nothing of omnic in it and its own settings of OpenMP.

Takes orders on standard input, gives results on standard output, both pickled: `Peer` is the other end.

    python -m benchmarks.peers.transformers_generate FOLDER THREADS
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any


class Library:
    """The model of a folder in transformers' own layout, in bf16."""

    def __init__(self, folder: str, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.model.generation_config.eos_token_id = None
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")

    def run(self, prompts: list[list[int]], lengths: list[int], rows: int) -> list[list[int]]:
        """The new tokens of each prompt, by padded batches of `rows`."""
        answers: list[list[int]] = []
        for at in range(0, len(prompts), rows):
            padded = self.tokenizer.pad({"input_ids": prompts[at : at + rows]}, return_tensors="pt")
            wanted = lengths[at : at + rows]
            found = self.model.generate(**padded, max_new_tokens=max(wanted), do_sample=False, pad_token_id=0)
            new = found[:, padded["input_ids"].shape[1] :].tolist()
            answers += [tokens[:length] for tokens, length in zip(new, wanted, strict=True)]
        return answers

    def logits(self, tokens: list[int], dtype: str) -> Any:
        """Of every position [tokens, vocabulary] float32, computed in `dtype`."""
        found = self.model.to(getattr(self.torch, dtype))(self.torch.tensor([tokens])).logits[0].float()
        self.model.to(self.torch.bfloat16)
        return found.numpy()


class Peer:
    """The process, seen from the benchmark. `environment` is what it is started with."""

    def __init__(self, folder: Path, threads: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.transformers_generate", str(folder), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def order(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((name, arguments), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(folder: str, threads: str) -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no result
    library = Library(folder, int(threads))
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(getattr(library, name)(*arguments), results)
        results.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
