"""A task that a tiny model learns in seconds, with everything that episodes of the benchmarks have.

A subject `gold-3` asks for the letter that pays for `gold`, three times. The prompt is rebuilt from what was hit and
missed; `S` stops early. The reward is the share of steps that hit.
"""

import re
import time
from dataclasses import dataclass, field

from castgym.data.errors import InfrastructureError
from castgym.envs.core import AgentEpisode, Transition
from castgym.envs.prompts import Prompt
from castgym.envs.sources import EpisodeScore

PAYING = {"red": "A", "blue": "B", "green": "C", "gold": "D"}
SUBJECTS = tuple(f"{task}-{steps}" for task in PAYING for steps in range(1, 5))


@dataclass(frozen=True)
class ToyConditions:
    prompt_mode: str = "memory"
    max_response_tokens: int = 8
    count_tokens: None = None

    def describe(self):
        return {"prompt_mode": self.prompt_mode}


class ToyEpisode(AgentEpisode):
    def __init__(self, subject_id, mode="memory", fail=None, slow=0.0):
        super().__init__(ToyConditions(mode))
        self._subject = subject_id
        self.task, steps = subject_id.split("-")
        self.steps = int(steps)
        self.hits = []
        self.fail = fail
        self.slow = slow

    subject_id = property(lambda self: self._subject)
    subject_digest = property(lambda self: self._subject)
    spent = property(lambda self: 0)

    def observe(self):
        memory = " ".join(self.hits) or "none"
        first = f"step 1 of {self.steps} memory none task {self.task}"
        if self.conditions.prompt_mode == "chat":
            messages = [{"role": "user", "content": first}, *self._chat]
        else:
            text = f"step {len(self.hits) + 1} of {self.steps} memory {memory} task {self.task}"
            messages = [{"role": "user", "content": text}]
        return Prompt(({"role": "system", "content": "pick a letter"}, *messages), (), {}, self.memory)

    def _call(self, calls, errors, message):
        return self._finish(Transition(outcome="invalid_submission"))

    def _commit(self, parsed, message=None):
        time.sleep(self.slow)
        if self.fail is not None and self.fail(self):
            raise InfrastructureError("the toy broke")
        found = re.search(r"[A-HS]", parsed.text)
        letter = found.group(0) if found else "x"
        if letter != "S":
            self.hits.append("hit" if letter == PAYING[self.task] else "miss")
        self._chat += [
            {"role": "assistant", "content": parsed.text},
            {"role": "user", "content": (self.hits or ["none"])[-1]},
        ]
        if letter == "S" or len(self.hits) >= self.steps:
            return self._finish(Transition(outcome="completed" if letter != "S" else "invalid_submission"))
        return Transition()


@dataclass
class ToySource:
    mode: str = "memory"
    fail: object = None
    slow: float = 0.0
    name: str = "toy"
    split: str = "train"
    fingerprint: str = "toy"
    ids: tuple = SUBJECTS
    made: list = field(default_factory=list)

    def dataset(self, subject_id):
        return subject_id.split("-")[0]

    def episode(self, subject_id):
        episode = ToyEpisode(subject_id, self.mode, self.fail, self.slow)
        self.made.append(episode)
        return episode

    def score(self, episode):
        reward = episode.hits.count("hit") / episode.steps
        return EpisodeScore(reward, 1 - reward, episode.end.outcome == "completed", {})


def toy_texts():
    yield "pick a letter A B C D E F G H S"
    for task in PAYING:
        for step in range(1, 5):
            yield f"step {step} of {step} memory hit miss none hit miss task {task}"


def build_toy_model(path, seed=0, updates=120):
    """A tiny policy that answers with a letter, right in part, and ends its turn: what SFT would leave."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from castgym.agents.rendering import prompt_text, token_ids
    from castgym.training.tiny_model import TinySize, build_tiny_model

    build_tiny_model(path, list(toy_texts()), TinySize(hidden=64, layers=2, vocabulary=400), seed=seed)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    rng = np.random.default_rng(seed)
    for _ in range(updates):
        batch = []
        for subject in rng.choice(SUBJECTS, 16):
            episode = ToyEpisode(str(subject))
            for _ in range(rng.integers(0, episode.steps)):
                episode.act(str(rng.choice(list("ABCDEFGH"))))
            prompt = token_ids(tokenizer, prompt_text(tokenizer, episode.observe().messages, thinking=False))
            letter = PAYING[episode.task] if rng.random() < 0.4 else str(rng.choice(list("ABCDEFGHS")))
            answer = token_ids(tokenizer, letter)
            batch.append((prompt, [*answer, tokenizer.eos_token_id]))
        width = max(len(p) + len(a) for p, a in batch)
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(p) - len(a)) + p + a for p, a in batch])
        labels = torch.tensor([[-100] * (width - len(a)) + a for _, a in batch])
        loss = model(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(path)
    return path
