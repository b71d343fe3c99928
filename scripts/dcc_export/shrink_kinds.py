"""What the name of a config's integer says that it counts. The first rule that fits decides."""

import functools
import re

_RULES = (
    ("own id", r"^(pad|bos|eos|sep|cls|mask|unk|decoder_start|forced_bos|forced_eos)_(token_id|index)$|^(pad|bos|eos)_token$"),
    ("id", r"token_(id|index)$|_token_ids$|_id$"),
    (
        "plain",
        r"kernel|stride|dilation|padding|ratio|mult$|multipl|expand|mlp_ratio|factor$|divisor|version|pretraining_tp|seed|channels$|num_labels"
        r"|_(min|max|floor)$|conv1d_width|d_conv|number_of|groups_width",
    ),
    ("vocabulary", r"vocab"),
    ("interval", r"interval|pattern|period|every|_freq|sparse_step|_step$"),
    ("offset", r"_offset$"),
    ("expert groups", r"^n_groups?$|num_expert_group"),
    ("chosen groups", r"topk_group"),
    ("choices", r"experts_per_tok|moe_top_?k|^moe_k$|^top_?k(_experts)?$|num_selected_experts"),
    ("shared", r"shared_experts$"),
    ("experts", r"experts?$|num_experts|expert_num$|experts_num"),
    ("heads", r"heads?$|heads_per_layer$|n_heads|n_group|query_groups$|_ngroups$|num_groups|o_groups"),
    ("head width", r"head_?dim|head_size|d_head|dim_head|^d_kv$|rotary_dim|rope_dim|kv_channels|query_pre_attn|d_rel|lsh_dim"),
    (
        "depth",
        r"(^|_)(n_|num_)?(layers?|depth|depths|blocks|stacks?|n_attn_blocks|num_block_repeats)$|layers_per_stack|block_sizes$"
        r"|self_attends_per_block|hidden_groups$|_numb_of_layers$|mem_blocks$",
    ),
    ("window", r"window|local_attention$|chunk|block_size|topk$|topk_blocks|block_length|local_radius|segment_means|compress_rates|_attention$"),
    ("positions", r"position|n_ctx|context_length|max_.*len|seq_len|rel_extent|_distance$|max_length|landmarks|num_latents"),
    ("image", r"image_size|input_size|crop_size"),
    ("patch", r"patch_size"),
    ("state", r"state"),
    ("factor", r"round_up|multiple_of|block_multiple"),
    ("width", r"size|dim|width|rank|hidden|ffn|inner|embd|embed|^d_|dff|units|features|latent|mid_channels|out_channel|_d_ssm"),
)


@functools.cache
def kind_of(name):
    """One of the kinds above, or "plain": left as it is."""
    for kind, pattern in _RULES:
        if re.search(pattern, name):
            return kind
    return "plain"
