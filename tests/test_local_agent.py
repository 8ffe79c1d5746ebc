"""Agents with a transformers model in this process: a real small Qwen3, saved and loaded by the standard calls."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from castgym.agents.endpoint_errors import ContextOverflowError  # noqa: E402
from castgym.agents.local import LocalAgent  # noqa: E402
from castgym.agents.local_sampling import SeededSampler  # noqa: E402
from castgym.agents.play import play_batch  # noqa: E402
from castgym.agents.sampling import SamplingSettings, turn_seed  # noqa: E402
from castgym.data.errors import ConfigError, InfrastructureError  # noqa: E402
from castgym.envs.episode import Episode  # noqa: E402
from castgym.envs.prompts import Prompt  # noqa: E402

TEMPLATE = """
{%- if tools %}<|im_start|>system
{{ messages[0].content }}

<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools><|im_end|>
{% else %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages[1:] %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""

CALL = (
    '<tool_call>{"name": "classical_plan", "arguments": {"series_id": "%s", "method": "weekday_empirical"}}</tool_call>'
)
ANSWER = '{"plan": "p1"}'
COMPACT: dict[str, Any] = {"prompt_style": "compact", "answer_form": "plan"}
SHORT = SamplingSettings(max_tokens=24, seed=3)


def small_tokenizer(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet)
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special[3:5]
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def small_model(tokenizer: Any, context: int = 8192) -> Any:
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, new_episode: Callable[..., Episode]) -> Path:
    """A saved model that knows nothing."""
    path = tmp_path_factory.mktemp("small-qwen3")
    prompts = [new_episode(number).observe().text for number in range(3)]
    tokenizer = small_tokenizer([*prompts, CALL, ANSWER])
    tokenizer.save_pretrained(path)
    model = small_model(tokenizer)
    model.generation_config.update(do_sample=True, temperature=0.6, top_k=20, repetition_penalty=1.3)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def agent(folder: Path) -> LocalAgent:
    return LocalAgent(folder, sampling=SHORT, device="cpu")


@pytest.fixture(scope="module")
def prompts(new_episode: Callable[..., Episode]) -> list[Prompt]:
    """Three prompts of different lengths."""
    episode = new_episode(1)
    first = episode.observe()
    episode.act(CALL % episode.case.series_id)
    return [first, episode.observe(), new_episode(2).observe()]


def test_a_reply_holds_the_exact_ids_and_their_text(agent: LocalAgent, prompts: list[Prompt]) -> None:
    for prompt, reply in zip(prompts, agent.respond_many(prompts), strict=True):
        assert reply.prompt_ids == agent.encode(prompt)
        assert reply.response_ids is not None and reply.logprobs is not None and reply.usage is not None
        assert 1 <= len(reply.response_ids) == len(reply.logprobs) <= SHORT.max_tokens
        said = [token for token in reply.response_ids if token != agent.tokenizer.eos_token_id]
        assert reply.text == agent.tokenizer.decode(said, skip_special_tokens=False)
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
            len(reply.prompt_ids),
            len(reply.response_ids),
        )


def test_the_logprobs_are_those_of_a_plain_forward_pass(agent: LocalAgent, prompts: list[Prompt]) -> None:
    """Batched with padding and a cache, against one row without either."""
    for reply in agent.respond_many(prompts):
        assert reply.prompt_ids is not None and reply.response_ids is not None
        ids = torch.tensor([[*reply.prompt_ids, *reply.response_ids]])
        with torch.no_grad():
            logits = agent.model(ids).logits[0].float() / 0.7
        rows = logits.log_softmax(-1)[len(reply.prompt_ids) - 1 : -1]
        expected = rows.gather(1, torch.tensor(reply.response_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(reply.logprobs), expected, atol=1e-4, rtol=0)


def test_a_reply_depends_on_its_seed_and_not_on_its_batch(agent: LocalAgent, prompts: list[Prompt]) -> None:
    together = agent.respond_many(prompts, seeds=[5, 6, 7])
    alone = [agent.respond_many([prompt], seeds=[seed])[0] for prompt, seed in zip(prompts, (5, 6, 7), strict=True)]
    assert [reply.response_ids for reply in together] == [reply.response_ids for reply in alone]
    same, other = agent.respond_many([prompts[0]] * 2, seeds=[5, 8])
    assert same.response_ids == together[0].response_ids
    assert other.response_ids != same.response_ids


def test_small_batches_change_nothing_but_memory(folder: Path, agent: LocalAgent, prompts: list[Prompt]) -> None:
    narrow = LocalAgent(folder, sampling=SHORT, device="cpu", batch_size=1)
    wanted = [reply.response_ids for reply in agent.respond_many(prompts, seeds=[1, 2, 3])]
    assert [reply.response_ids for reply in narrow.respond_many(prompts, seeds=[1, 2, 3])] == wanted


def test_sampling_leaves_the_global_randomness_alone(agent: LocalAgent, prompts: list[Prompt]) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = agent.respond_many(prompts[:1])[0]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    assert agent.respond_many(prompts[:1])[0].response_ids == first.response_ids


def test_temperature_zero_takes_the_likeliest_token(folder: Path, prompts: list[Prompt]) -> None:
    greedy = LocalAgent(folder, sampling=replace(SHORT, temperature=0.0), device="cpu")
    one, two = greedy.respond_many([prompts[0]] * 2, seeds=[1, 2])
    assert one.response_ids == two.response_ids
    assert one.prompt_ids is not None and one.response_ids is not None
    with torch.no_grad():
        logits = greedy.model(torch.tensor([one.prompt_ids])).logits[0, -1]
    assert one.response_ids[0] == int(logits.argmax())


def test_tokens_are_drawn_with_the_probabilities_of_the_kept_ones() -> None:
    """Against the probabilities by hand: top_k keeps four of five, top_p then drops the last that it does not need."""
    probabilities = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    rows = 20_000
    sampler = SeededSampler(SamplingSettings(temperature=1.0, top_k=4, top_p=0.85), list(range(rows)))
    scores = sampler(torch.zeros(rows, 1, dtype=torch.long), probabilities.log().expand(rows, -1))
    share = torch.bincount(scores.argmax(-1), minlength=5) / rows
    kept = torch.tensor([0.4, 0.3, 0.15, 0.0, 0.0])
    torch.testing.assert_close(share, kept / kept.sum(), atol=0.015, rtol=0)
    torch.testing.assert_close(sampler.logprobs[0], probabilities.log()[scores.argmax(-1)])


def test_a_long_response_is_cut_and_ends_the_episode_as_truncated(
    agent: LocalAgent, new_episode: Callable[..., Episode]
) -> None:
    played = play_batch(agent, [new_episode(0)], seeds=[0])[0]
    assert played.turns[0].reply.truncated
    assert played.episode.end.outcome == "truncated"


def test_a_prompt_over_the_limit_is_an_error_that_names_both_sizes(folder: Path, prompts: list[Prompt]) -> None:
    tight = LocalAgent(folder, sampling=SHORT, device="cpu", prompt_limit=100)
    with pytest.raises(ContextOverflowError, match=r"prompt of \d{3,} tokens, more than prompt_limit = 100"):
        tight.respond_many(prompts)
    assert issubclass(ContextOverflowError, InfrastructureError)


def test_an_overlong_prompt_leaves_the_other_episodes_in_play(
    folder: Path, new_episode: Callable[..., Episode]
) -> None:
    episodes = [new_episode(0), new_episode(1, prompt_mode="chat")]
    for method in ("weekday_empirical", "weekly_repeat"):
        call = {"name": "classical_plan", "arguments": {"series_id": episodes[1].case.series_id, "method": method}}
        episodes[1].act(json.dumps(call))
    agent = LocalAgent(folder, sampling=SHORT, device="cpu")
    sizes = [len(agent.encode(episode.observe())) for episode in episodes]
    agent.prompt_limit = max(sizes) - 1
    assert min(sizes) < agent.prompt_limit
    first, second = play_batch(agent, episodes)
    assert (first.error, first.episode.done) == (None, True)
    assert isinstance(second.error, ContextOverflowError) and not second.turns


def test_a_context_that_leaves_no_prompt_is_refused_at_once(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"context of 8192 tokens.*lower max_tokens"):
        LocalAgent(folder, device="cpu")


def test_a_model_as_objects_keeps_its_training_mode(folder: Path, agent: LocalAgent, prompts: list[Prompt]) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).train()
    shared = LocalAgent(model, tokenizer=agent.tokenizer, sampling=SHORT)
    wanted = agent.respond_many(prompts)[1].response_ids
    assert shared.respond_many(prompts)[1].response_ids == wanted
    assert model.training
    with pytest.raises(ConfigError, match="tokenizer"):
        LocalAgent(model)


def test_an_adapter_changes_the_responses_and_is_named(folder: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tuned = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    tuned.save_pretrained(tmp_path / "lora")
    plain = LocalAgent(folder, sampling=SHORT, device="cpu")
    adapted = LocalAgent(folder, adapter=tmp_path / "lora", sampling=SHORT, device="cpu")
    assert adapted.name == f"{folder.name}+lora" and adapted.options["adapter"] == "lora"
    assert adapted.respond_many(prompts)[0].logprobs != plain.respond_many(prompts)[0].logprobs


def test_the_template_gets_tools_and_the_thinking_switch(
    folder: Path, agent: LocalAgent, prompts: list[Prompt]
) -> None:
    text = agent.tokenizer.decode(agent.encode(prompts[0]))
    assert text.count('"type": "function"') == len(prompts[0].tools) > 5
    assert text.endswith("<|im_start|>assistant\n")
    quiet = LocalAgent(folder, sampling=replace(SHORT, thinking=False), device="cpu")
    assert quiet.tokenizer.decode(quiet.encode(prompts[0])).endswith("<think></think>")


def test_a_template_without_tools_gets_them_in_the_system_message(folder: Path, prompts: list[Prompt]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    model = small_model(tokenizer)
    agent = LocalAgent(model, tokenizer=tokenizer, sampling=SHORT)
    text = tokenizer.decode(agent.encode(prompts[0]))
    assert text.index("<tools>") < text.index("<|im_start|>user")
    with pytest.raises(ConfigError, match="enable_thinking"):
        LocalAgent(model, tokenizer=tokenizer, sampling=replace(SHORT, thinking=True))


def test_a_model_that_learned_to_plays_episodes_to_their_end(folder: Path, new_episode: Callable[..., Episode]) -> None:
    """A few steps of training on one transcript: call a tool, then name its plan."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = small_model(tokenizer)
    agent = LocalAgent(model, tokenizer=tokenizer, sampling=replace(SHORT, temperature=0.0, max_tokens=96))
    script = new_episode(0, **COMPACT)
    responses = [CALL % script.case.series_id, ANSWER]
    rows = []
    for said in responses:
        prompt = agent.encode(script.observe())
        rows.append((torch.tensor([[*prompt, *tokenizer.encode(said + "<|im_end|>")]]), len(prompt)))
        script.act(said)
    assert script.end.outcome == "completed"
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(200):
        losses = []
        for ids, start in rows:
            logits = model(ids, logits_to_keep=ids.shape[1] - start + 1).logits[0, :-1]
            losses.append(torch.nn.functional.cross_entropy(logits, ids[0, start:]))
        loss = torch.stack(losses).mean()
        if loss < 0.05:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for played in play_batch(agent, [new_episode(0, **COMPACT), new_episode(0, **COMPACT)], seeds=[1, 2]):
        assert played.error is None
        assert [turn.reply.text for turn in played.turns] == responses
        assert played.turns[0].reply.message["finish_reason"] == "stop"
        assert played.episode.end.outcome == "completed"


def test_options_are_json_and_hold_what_matters(agent: LocalAgent, folder: Path) -> None:
    options = json.loads(json.dumps(agent.options))
    assert options["model"] == agent.name == folder.name
    assert options["sampling"]["max_tokens"] == 24 and options["dtype"] == "float32"


def test_seeds_of_turns_differ_and_fit_every_endpoint() -> None:
    seeds = [turn_seed(1701, turn) for turn in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert turn_seed(1701, 0) == turn_seed(1701, 0) != turn_seed(1702, 0)
