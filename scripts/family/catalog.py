"""Which families are tried, and for what: every causal LM that transformers knows, and ten of each other task."""

import dataclasses

MASKED = ("albert", "bert", "deberta-v2", "distilbert", "electra", "esm", "modernbert", "mpnet", "roberta", "xlm-roberta")
SEQ2SEQ = ("bart", "blenderbot", "longt5", "m2m_100", "marian", "mt5", "pegasus", "plbart", "switch_transformers", "t5")
IMAGE = ("convnext", "deit", "dinov2", "efficientnet", "mobilenet_v2", "regnet", "resnet", "segformer", "swin", "vit")

# Values without which transformers cannot build a family's default config (BEFORE shrinking), or that must agree with each other or with
# the length of a sequence in the small one (AFTER). They decide nothing else.
_INDEXER = {"indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048, "indexer_compress_ratio": 4}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
BEFORE = {
    "dbrx": {"attn_config": {"kv_n_heads": 8, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "efficientnet": {"hidden_dim": 1280, "width_coefficient": 1.0},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention"], "num_hidden_layers": 3},
    "qwen4_exp": {"text_config": _INDEXER},
    "qwen4_exp_text": _INDEXER,
    "xmod": {"default_language": "en_XX"},
}
AFTER = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "reformer": {"axial_pos_shape": [4, 8], "axial_pos_embds_dim": [16, 48]},
}

# Options that export.py needs where it cannot infer them; without them its error names the option. ProphetNet's second stream sees tokens that
# follow, its first does not: position 0 predicts label 0, so that the caller shifts.
EXPORT = {"prophetnet": ["--labels", "next"]}


@dataclasses.dataclass(frozen=True)
class Task:
    """`auto`: transformers' auto class. `table`: its table in modeling_auto. `batch`: rows of a micro-batch; batch norm needs several."""

    name: str
    auto: str
    table: str
    batch: int = 2


CAUSAL_LM = Task("causal LM", "AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
MASKED_LM = Task("masked LM", "AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES")
SEQ2SEQ_LM = Task("seq2seq", "AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES")
IMAGES = Task("image", "AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", batch=8)


@dataclasses.dataclass(frozen=True)
class Family:
    kind: str  # transformers' model type
    task: Task

    @property
    def key(self):
        """A name for files and the command line, such as `llama` or `bert:masked-lm`."""
        return self.kind if self.task is CAUSAL_LM else f"{self.kind}:{self.task.name.lower().replace(' ', '-')}"


def families():
    """All of them, causal LMs first, in the order of their names."""
    from transformers.models.auto import modeling_auto

    causal = sorted(getattr(modeling_auto, CAUSAL_LM.table))
    others = [(MASKED, MASKED_LM), (SEQ2SEQ, SEQ2SEQ_LM), (IMAGE, IMAGES)]
    return [Family(k, CAUSAL_LM) for k in causal] + [Family(k, task) for kinds, task in others for k in kinds]


def of_the_day(count, day):
    """`count` families for the day with this number (days since year 1): all have their turn before one comes again."""
    import random

    everything = families()
    random.Random(0).shuffle(everything)
    first = day * count % len(everything)
    return (everything + everything)[first : first + count]
