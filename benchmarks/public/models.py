"""Models of timm, torchvision, transformers and peft, and an encoder."""
# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, import-untyped, misc, no-any-return"
# mypy: disable-error-code="arg-type, var-annotated"

from __future__ import annotations

from typing import Any

from .kit import Values, images, program, squared, train


@program("timm")
def timm_resnet() -> Values:
    import timm

    return train(timm.create_model("resnet18", num_classes=10).cuda(), images(), squared)


@program("timm")
def timm_vit() -> Values:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10).cuda()
    return train(model, images(), squared)


@program("timm")
def timm_vit_compiled() -> Values:
    import timm
    import torch

    model = torch.compile(
        timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=10).cuda()
    )
    return train(model, images(), squared)


@program("timm")
def timm_prefetch_loader() -> Values:
    """Its loader copies and normalizes the next batch on a stream of its own."""
    import torch
    from timm.data.loader import PrefetchLoader
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(
        torch.randint(0, 255, (64, 3, 64, 64), dtype=torch.uint8), torch.zeros(64, dtype=torch.long)
    )
    loader = PrefetchLoader(DataLoader(data, 8, pin_memory=True, num_workers=2), device=torch.device("cuda"))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).cuda()
    return train(model, (images for images, _ in loader), squared)


@program("torchvision")
def torchvision_mobilenet_amp() -> Values:
    import torch
    import torchvision

    model = torchvision.models.mobilenet_v3_small(num_classes=10).cuda().to(memory_format=torch.channels_last)
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for batch in images():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = squared(model, batch.to(memory_format=torch.channels_last))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    return losses


def causal() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).cuda()


@program("transformers")
def transformers_llama() -> Values:
    import torch

    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(causal(), tokens, lambda model, batch: model(batch, labels=batch).loss)


@program("transformers")
def transformers_llama_compiled() -> Values:
    import torch

    model = torch.compile(causal())
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss)


@program("transformers")
def transformers_bert_fused() -> Values:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    model = BertForMaskedLM(config).cuda()
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss, optimizer)


def generated(**options: Any) -> Values:
    import torch

    model = causal().eval()
    tokens = torch.randint(2, 128, (2, 16), device="cuda")
    out = model.generate(tokens, max_new_tokens=12, do_sample=False, **options)
    return [float(each) for each in out.flatten().cpu()]


@program("transformers")
def transformers_generate() -> Values:
    return generated()


@program("transformers")
def transformers_offloaded_cache() -> Values:
    """The cache of each layer is copied to the host, and the next one's is fetched on a stream of its own."""
    return generated(cache_implementation="offloaded")


@program("transformers")
def transformers_offloaded_static_cache() -> Values:
    return generated(cache_implementation="offloaded_static")


@program("peft", "transformers")
def peft_lora() -> Values:
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(causal(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    tokens = [torch.randint(2, 128, (4, 32), device="cuda") for _ in range(4)]
    return train(model, tokens, lambda model, batch: model(batch, labels=batch).loss)


def encoder(**options: Any) -> Values:
    import torch

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    batches = [torch.randn(4, 32, 64, device="cuda") for _ in range(4)]
    return train(model, batches, squared, torch.optim.AdamW(model.parameters(), lr=1e-3, **options))


@program()
def encoder_adamw_foreach() -> Values:
    return encoder(foreach=True)


@program()
def encoder_adamw_fused() -> Values:
    return encoder(fused=True)
