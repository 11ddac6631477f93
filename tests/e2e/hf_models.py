"""Small random models of every class that `weft convert` reads, some in variants, made by the transformers package itself.

python hf_models.py STORE [NAME ...]   writes the cases of tests/golden/hf: folder, token ids, the package's logits
"""

import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

# Sizes are odd where the architecture allows it, heads are grouped, vocabularies no multiple of anything.
SHAPE = dict(vocab_size=53, hidden_size=20, num_hidden_layers=2, max_position_embeddings=512)
HEADS = dict(num_attention_heads=4, num_key_value_heads=2)
ROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=11)

FAMILIES = {
    "llama": ("LlamaConfig", dict(SHAPE, **HEADS, **ROPE, intermediate_size=27, head_dim=6, tie_word_embeddings=True)),
    "mistral": ("MistralConfig", dict(SHAPE, **HEADS, **ROPE, intermediate_size=27, head_dim=6, sliding_window=7)),
    "mixtral": ("MixtralConfig", dict(SHAPE, **HEADS, **ROPE, intermediate_size=11, head_dim=6, num_local_experts=5)),
    "olmoe": ("OlmoeConfig", dict(SHAPE, num_attention_heads=2, num_key_value_heads=1, **ROPE, intermediate_size=11, num_experts=5,
                                  num_experts_per_tok=2)),
    "qwen2_moe": ("Qwen2MoeConfig", dict(SHAPE, num_attention_heads=2, num_key_value_heads=1, **ROPE, **EXPERTS,
                                         intermediate_size=27, shared_expert_intermediate_size=9, num_hidden_layers=3,
                                         mlp_only_layers=[1])),
    "qwen3_moe": ("Qwen3MoeConfig", dict(SHAPE, **HEADS, **ROPE, **EXPERTS, head_dim=6, intermediate_size=27,
                                         norm_topk_prob=True, decoder_sparse_step=2, num_hidden_layers=3)),
    "qwen3_next": ("Qwen3NextConfig", dict(SHAPE, **HEADS, **EXPERTS, head_dim=8, intermediate_size=27,
                                           shared_expert_intermediate_size=9, norm_topk_prob=True,
                                           linear_key_head_dim=5, linear_value_head_dim=6, linear_num_key_heads=2,
                                           linear_num_value_heads=4, num_hidden_layers=3, mlp_only_layers=[1],
                                           layer_types=["linear_attention", "full_attention", "linear_attention"],
                                           rope_parameters={"rope_type": "default", "rope_theta": 500.0,
                                                            "partial_rotary_factor": 0.5})),
    "minimax": ("MiniMaxConfig", dict(SHAPE, **HEADS, **ROPE, intermediate_size=11, head_dim=6, num_local_experts=5,
                                      num_hidden_layers=3, block_size=16,
                                      layer_types=["linear_attention", "full_attention", "linear_attention"],
                                      full_attn_alpha_factor=1.3, full_attn_beta_factor=0.7,
                                      linear_attn_alpha_factor=1.1, linear_attn_beta_factor=0.9,
                                      mlp_alpha_factor=0.8, mlp_beta_factor=1.2)),
    "granitemoehybrid": ("GraniteMoeHybridConfig", dict(SHAPE, **HEADS, intermediate_size=11, num_local_experts=5,
                                                        num_experts_per_tok=2, shared_intermediate_size=13,
                                                        num_hidden_layers=3, embedding_multiplier=3.0,
                                                        logits_scaling=2.5, residual_multiplier=0.6,
                                                        attention_multiplier=0.3, mamba_n_heads=4, mamba_n_groups=2,
                                                        mamba_d_state=7, mamba_d_head=10,
                                                        layer_types=["linear_attention", "full_attention", "linear_attention"],
                                                        position_embedding_type="nope", tie_word_embeddings=True)),
    "jamba": ("JambaConfig", dict(SHAPE, **HEADS, intermediate_size=11, num_experts=5, num_experts_per_tok=2,
                                  num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2,
                                  expert_layer_offset=0, mamba_d_state=5, mamba_dt_rank=3, use_mamba_kernels=False)),
    "mamba2": ("Mamba2Config", dict(vocab_size=53, hidden_size=20, num_hidden_layers=2, num_heads=4, head_dim=10,
                                    state_size=7, n_groups=2, chunk_size=16)),
    "kimi_linear": ("KimiLinearConfig", dict(SHAPE, num_attention_heads=4, num_key_value_heads=4, intermediate_size=27,
                                             moe_intermediate_size=11, num_local_experts=5, num_experts_per_tok=2,
                                             num_hidden_layers=3, kv_lora_rank=9, qk_rope_head_dim=4, qk_nope_head_dim=6,
                                             v_head_dim=5, linear_head_dim=6, linear_num_heads=3,
                                             layer_types=["linear_attention", "full_attention", "linear_attention"],
                                             pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    # Rotations of models that were stretched to longer texts: one pair of channels as before, one between, one slower.
    "llama_llama3": ("LlamaConfig", dict(SHAPE, **HEADS, intermediate_size=27, head_dim=6, tie_word_embeddings=True,
                                         rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                                                          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                          "original_max_position_embeddings": 64})),
    "mistral_linear": ("MistralConfig", dict(SHAPE, **HEADS, intermediate_size=27, head_dim=6, sliding_window=None,
                                             rope_parameters={"rope_type": "linear", "rope_theta": 500.0,
                                                              "factor": 2.5})),
    "qwen3_moe_yarn": ("Qwen3MoeConfig", dict(SHAPE, **HEADS, **EXPERTS, head_dim=8, intermediate_size=27,
                                              norm_topk_prob=True,
                                              rope_parameters={"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
                                                               "beta_fast": 3.0, "beta_slow": 0.5,
                                                               "original_max_position_embeddings": 32})),
}
BF16 = ["mixtral"]  # stored type; computed in f32


def make_model(family, seed=1):
    """A model whose weights all matter: norms, gates and biases differ from their neutral start."""
    class_name, options = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, class_name)(**options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                                experts_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("A_log"):
                p.copy_(torch.rand_like(p))
            elif p.ndim >= 2:
                p.copy_(torch.randn_like(p) * 0.4 / max(1.0, p.shape[-1] / 20) ** 0.5)
            else:
                p.add_(torch.randn_like(p) * 0.2)
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name:
                b.copy_(torch.randn_like(b) * 0.2)
    return model


def round_to_bf16(model):
    with torch.no_grad():
        for t in model.state_dict().values():
            if t.is_floating_point():
                t.copy_(t.bfloat16().float())


def save(model, folder, bf16=False, shard="5GB"):
    shutil.rmtree(folder, ignore_errors=True)
    if bf16:
        round_to_bf16(model)
        import copy
        copy.deepcopy(model).bfloat16().save_pretrained(folder, max_shard_size=shard)
    else:
        model.save_pretrained(folder, max_shard_size=shard)


def tokens_for(model, sequences, length, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (sequences, length), generator=generator)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens, use_cache=False).logits.float()


def store(root, names):
    for family in names:
        model = make_model(family)
        folder = os.path.join(root, family)
        save(model, folder, family in BF16)
        tokens = tokens_for(model, 2, 19)
        save_file({"tokens": tokens.int().contiguous(), "logits": logits_of(model, tokens).contiguous()},
                  os.path.join(folder, "expected.st"))
        path = os.path.join(folder, "config.json")
        with open(path) as f:
            config = json.load(f)
        config.pop("transformers_version", None)
        with open(path, "w") as f:
            json.dump(config, f, indent=1, sort_keys=True)
            f.write("\n")
        print(family, sum(p.numel() for p in model.parameters()), sorted(os.listdir(folder)))


if __name__ == "__main__":
    store(sys.argv[1], sys.argv[2:] or list(FAMILIES))
