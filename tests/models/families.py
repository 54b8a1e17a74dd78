"""Families of transformers, one row each: small random configurations of what people compile, over many kinds of tasks.

`make models` compares each with eager after the list of `bench/models.py`. A row names the task, the model's class, its configuration and
what makes its inputs; a row in BREAKS has more than one graph, and says why.
"""
import pathlib
import sys

import torch
from torch import nn

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "bench")]

from models import BATCH, CLIP, DECODER, ENCODER, GPT2, T5, BART, VOCAB, Entry, features, generator, images, padding, tokens  # noqa: E402


def made(name, config):
    """An object of transformers' configuration class `name`; what is a (name, settings) inside is made likewise."""
    import transformers

    return getattr(transformers, name)(**{k: made(*v) if isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) else v
                                          for k, v in config.items()})


def first_float(out):
    if isinstance(out, torch.Tensor):
        return out if out.is_floating_point() else None
    if isinstance(out, (int, float, str, type(None))):
        return None
    values = out.values() if isinstance(out, dict) else out if isinstance(out, (list, tuple)) else vars(out).values()
    return next((found for found in map(first_float, values) if found is not None), None)


class Trained(nn.Module):
    """A model with a loss: a mean of squares, where the task has none of its own."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        out = self.model(**inputs)
        return first_float(out).float().pow(2).mean(), out


def builder(model, config, settings, train=False):
    def build():
        import transformers

        transformers.logging.set_verbosity_error()
        module = getattr(transformers, model)(made(config, settings))
        return Trained(module) if train else module
    build.needs = "transformers"
    return build


# -- inputs ------------------------------------------------------------------------------------------------------------


def given(**makers):
    """Keyword arguments, each made of the number of the call."""
    return lambda i: ((), {name: make(i) if callable(make) else make for name, make in makers.items()})


def waves(length=1600):
    return lambda i: features(i, BATCH, length)


def pixels(size=32, channels=3):
    return lambda i: images(i, channels, size)


def frames(count=4, size=32):
    return lambda i: torch.randn(BATCH, count, 3, size, size, generator=generator(i, 11))


def boxes(i):
    corner = torch.randint(0, 400, (BATCH, 16, 2), generator=generator(i, 19))
    return torch.cat([corner, corner + 50], -1)


def with_image(token, count, size=32):
    """Text with places for the patches of one image in each row."""
    def ids(i):
        text = tokens(i, (BATCH, count + 12), low=8)
        text[:, 2:2 + count] = token
        return text
    return given(input_ids=ids, pixel_values=pixels(size), attention_mask=lambda i: torch.ones(BATCH, count + 12, dtype=torch.long))


text = given(input_ids=tokens, attention_mask=padding)
long_text = given(input_ids=lambda i: tokens(i, (BATCH, 64)), attention_mask=lambda i: padding(i, (BATCH, 64)))
causal = given(input_ids=tokens, use_cache=False)
pairs = given(input_ids=tokens, decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5), use_cache=False)
long_pairs = given(input_ids=lambda i: tokens(i, (BATCH, 64)), decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5), use_cache=False)
# Some make the mask of ones that nobody gives only while they are not compiled, and then fail without it.
masked_pairs = given(input_ids=tokens, attention_mask=padding, decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5),
                     decoder_attention_mask=lambda i: torch.ones(BATCH, 8, dtype=torch.long), use_cache=False)
long_masked_pairs = given(input_ids=lambda i: tokens(i, (BATCH, 64)), attention_mask=lambda i: padding(i, (BATCH, 64)),
                          decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5), decoder_attention_mask=lambda i: torch.ones(BATCH, 8, dtype=torch.long), use_cache=False)
image = given(pixel_values=pixels())
image64 = given(pixel_values=pixels(64))
image128 = given(pixel_values=pixels(128))
sound = given(input_values=waves())

# -- configurations ----------------------------------------------------------------------------------------------------

WIDE = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
LONG = dict(ENCODER, max_position_embeddings=256, attention_window=8)
SPEECH = dict(WIDE, vocab_size=40, conv_dim=[16, 16, 16], conv_kernel=[10, 3, 3], conv_stride=[5, 2, 2], num_conv_pos_embeddings=16,
              num_conv_pos_embedding_groups=2, num_feat_extract_layers=3, mask_time_length=4, layerdrop=0.0, pad_token_id=0)
MIXTURE = dict(DECODER, num_experts=4, num_experts_per_tok=2, num_local_experts=4, moe_intermediate_size=32,
               shared_expert_intermediate_size=32)
DETR = dict(backbone_config=("ResNetConfig", dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"])),
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=8, num_labels=5)
SERIES = dict(prediction_length=4, context_length=12, lags_sequence=[1, 2, 3], num_time_features=2, d_model=16, encoder_layers=2,
              decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, input_size=1)
SMALL_VISION = dict(WIDE, image_size=32, patch_size=8)
CLIP_TEXT, CLIP_VISION = CLIP["text_config"], CLIP["vision_config"]
series = given(past_values=lambda i: features(i, BATCH, 15), past_time_features=lambda i: features(i, BATCH, 15, 2),
               past_observed_mask=lambda i: torch.ones(BATCH, 15), future_values=lambda i: features(i, BATCH, 4),
               future_time_features=lambda i: features(i, BATCH, 4, 2))

# family: task, model, configuration class, settings, inputs
FAMILIES = {
    # text in both directions
    "distilbert": ("classification", "DistilBertForSequenceClassification", "DistilBertConfig",
                   dict(vocab_size=VOCAB, dim=64, hidden_dim=128, n_layers=2, n_heads=4), text),
    "albert": ("fill mask", "AlbertForMaskedLM", "AlbertConfig", dict(ENCODER, embedding_size=32), text),
    "electra": ("token classification", "ElectraForTokenClassification", "ElectraConfig", dict(ENCODER, embedding_size=32), text),
    "deberta": ("fill mask", "DebertaForMaskedLM", "DebertaConfig", dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"]), text),
    "deberta_v2": ("question answering", "DebertaV2ForQuestionAnswering", "DebertaV2Config",
                   dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8), text),
    "mpnet": ("fill mask", "MPNetForMaskedLM", "MPNetConfig", ENCODER, text),
    "xlm_roberta": ("token classification", "XLMRobertaForTokenClassification", "XLMRobertaConfig", ENCODER, text),
    "funnel": ("classification", "FunnelForSequenceClassification", "FunnelConfig",
               dict(vocab_size=VOCAB, d_model=32, n_head=4, d_head=8, d_inner=64, block_sizes=[1, 1]), text),
    "fnet": ("fill mask", "FNetForMaskedLM", "FNetConfig", ENCODER, given(input_ids=tokens)),
    "convbert": ("classification", "ConvBertForSequenceClassification", "ConvBertConfig", dict(ENCODER, embedding_size=64), text),
    "squeezebert": ("fill mask", "SqueezeBertForMaskedLM", "SqueezeBertConfig", dict(ENCODER, embedding_size=64), text),
    "mobilebert": ("question answering", "MobileBertForQuestionAnswering", "MobileBertConfig",
                   dict(ENCODER, embedding_size=32, intra_bottleneck_size=32), text),
    "longformer": ("classification", "LongformerForSequenceClassification", "LongformerConfig", LONG, long_text),
    "big_bird": ("fill mask", "BigBirdForMaskedLM", "BigBirdConfig", dict(ENCODER, block_size=4, num_random_blocks=2), long_text),
    "roformer": ("fill mask", "RoFormerForMaskedLM", "RoFormerConfig", dict(ENCODER, embedding_size=64), text),
    "nystromformer": ("fill mask", "NystromformerForMaskedLM", "NystromformerConfig", dict(ENCODER, num_landmarks=64, segment_means_seq_len=64),
                      long_text),
    "canine": ("classification", "CanineForSequenceClassification", "CanineConfig",
               dict(ENCODER, num_hash_buckets=64, local_transformer_stride=16, type_vocab_size=4), long_text),
    "modernbert": ("fill mask", "ModernBertForMaskedLM", "ModernBertConfig", dict(ENCODER, local_attention=8, reference_compile=False), text),
    "xlnet": ("classification", "XLNetForSequenceClassification", "XLNetConfig", dict(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=4, d_inner=64), text),
    "xlm": ("fill mask", "XLMWithLMHeadModel", "XLMConfig", dict(vocab_size=VOCAB, emb_dim=32, n_layers=2, n_heads=4), text),
    "reformer": ("text generation", "ReformerModelWithLMHead", "ReformerConfig",
                 dict(vocab_size=VOCAB, hidden_size=32, attention_head_size=8, num_attention_heads=4, feed_forward_size=64, attn_layers=["local", "local"],
                      axial_pos_embds=False, is_decoder=True, max_position_embeddings=128, local_attn_chunk_length=8), given(input_ids=tokens)),
    "perceiver": ("fill mask", "PerceiverForMaskedLM", "PerceiverConfig",
                  dict(vocab_size=VOCAB, num_latents=8, d_latents=32, d_model=32, num_self_attends_per_block=1, num_blocks=1,
                       num_self_attention_heads=4, num_cross_attention_heads=4, max_position_embeddings=64, qk_channels=32, v_channels=32), text),
    # documents
    "layoutlm": ("documents", "LayoutLMForTokenClassification", "LayoutLMConfig", dict(ENCODER, max_2d_position_embeddings=512),
                 given(input_ids=tokens, bbox=boxes, attention_mask=padding)),
    "layoutlmv3": ("documents", "LayoutLMv3ForTokenClassification", "LayoutLMv3Config",
                   dict(ENCODER, max_2d_position_embeddings=512, input_size=32, patch_size=8, coordinate_size=10, shape_size=12),
                   given(input_ids=tokens, bbox=boxes, attention_mask=padding, pixel_values=pixels())),
    "lilt": ("documents", "LiltForTokenClassification", "LiltConfig", dict(ENCODER, hidden_size=48, max_2d_position_embeddings=512, channel_shrink_ratio=4),
             given(input_ids=tokens, bbox=boxes, attention_mask=padding)),
    # text from left to right
    **{name: ("text generation", f"{stem}ForCausalLM", f"{stem}Config", settings, causal) for name, stem, settings in [
        ("gemma", "Gemma", dict(DECODER, head_dim=16)), ("gemma2", "Gemma2", dict(DECODER, head_dim=16, sliding_window=8)),
        ("phi", "Phi", DECODER), ("phi3", "Phi3", DECODER), ("olmo2", "Olmo2", DECODER), ("stablelm", "StableLm", DECODER),
        ("starcoder2", "Starcoder2", DECODER), ("cohere", "Cohere", DECODER), ("granite", "Granite", DECODER),
        ("qwen3", "Qwen3", dict(DECODER, head_dim=16)), ("gpt_neox", "GPTNeoX", dict(DECODER, rotary_pct=0.25)),
        ("gpt_neo", "GPTNeo", dict(vocab_size=VOCAB, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
                                   max_position_embeddings=64, window_size=8)),
        ("gptj", "GPTJ", dict(GPT2, rotary_dim=8)), ("codegen", "CodeGen", dict(GPT2, rotary_dim=8)),
        ("opt", "OPT", dict(DECODER, ffn_dim=128, word_embed_proj_dim=64)), ("bloom", "Bloom", dict(vocab_size=VOCAB, hidden_size=64, n_layer=2, n_head=4)),
        ("falcon", "Falcon", dict(DECODER, multi_query=True, alibi=False)), ("mpt", "Mpt", dict(vocab_size=VOCAB, d_model=64, n_layers=2, n_heads=4, max_seq_len=64)),
        ("mamba", "Mamba", dict(vocab_size=VOCAB, hidden_size=32, state_size=8, num_hidden_layers=2)),
        ("mamba2", "Mamba2", dict(vocab_size=VOCAB, hidden_size=32, state_size=8, num_hidden_layers=2, num_heads=8, head_dim=8, n_groups=2, chunk_size=8)),
        ("rwkv", "Rwkv", dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32, context_length=64)),
        ("recurrent_gemma", "RecurrentGemma", dict(DECODER, num_key_value_heads=1, lru_width=64, attention_window_size=16)),
        ("qwen2_moe", "Qwen2Moe", MIXTURE), ("qwen3_moe", "Qwen3Moe", dict(MIXTURE, head_dim=16)), ("olmoe", "Olmoe", MIXTURE), ("granitemoe", "GraniteMoe", MIXTURE)]},
    "gemma3_text": ("text generation", "Gemma3ForCausalLM", "Gemma3TextConfig", dict(DECODER, head_dim=16, sliding_window=8), causal),
    # from text to text
    **{name: ("translation and summaries", model, config, settings, inputs) for name, model, config, settings, inputs in [
        ("pegasus", "PegasusForConditionalGeneration", "PegasusConfig", BART, pairs), ("mbart", "MBartForConditionalGeneration", "MBartConfig", BART, pairs),
        ("marian", "MarianMTModel", "MarianConfig", BART, pairs), ("m2m_100", "M2M100ForConditionalGeneration", "M2M100Config", BART, pairs),
        ("blenderbot", "BlenderbotForConditionalGeneration", "BlenderbotConfig", BART, pairs),
        ("led", "LEDForConditionalGeneration", "LEDConfig", dict(BART, attention_window=8, max_encoder_position_embeddings=128,
                                                               max_decoder_position_embeddings=64), long_pairs),
        ("longt5", "LongT5ForConditionalGeneration", "LongT5Config", dict(T5, local_radius=7), long_masked_pairs),
        ("umt5", "UMT5ForConditionalGeneration", "UMT5Config", T5, pairs),
        ("switch_transformers", "SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", dict(T5, num_experts=4), masked_pairs),
        ("prophetnet", "ProphetNetForConditionalGeneration", "ProphetNetConfig",
         dict(vocab_size=VOCAB, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
              num_decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64), pairs),
        ("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", "BigBirdPegasusConfig", dict(BART, block_size=4, num_random_blocks=2), long_pairs)]},
    # images
    **{name: ("image classification", model, config, settings, inputs) for name, model, config, settings, inputs in [
        ("deit", "DeiTForImageClassification", "DeiTConfig", SMALL_VISION, image), ("beit", "BeitForImageClassification", "BeitConfig", SMALL_VISION, image),
        ("dinov2", "Dinov2ForImageClassification", "Dinov2Config", SMALL_VISION, image),
        ("mobilenet_v2", "MobileNetV2ForImageClassification", "MobileNetV2Config", dict(image_size=32, depth_multiplier=0.35), image),
        ("mobilevit", "MobileViTForImageClassification", "MobileViTConfig", dict(image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], patch_size=2), image64),
        ("efficientnet", "EfficientNetForImageClassification", "EfficientNetConfig",
         dict(image_size=32, width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640), image64),
        ("regnet", "RegNetForImageClassification", "RegNetConfig", dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], groups_width=4), image),
        ("levit", "LevitForImageClassification", "LevitConfig", dict(image_size=64, hidden_sizes=[16, 32, 48], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8]), image64),
        ("poolformer", "PoolFormerForImageClassification", "PoolFormerConfig", dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]), image),
        ("pvt_v2", "PvtV2ForImageClassification", "PvtV2Config", dict(image_size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]), image64),
        ("swinv2", "Swinv2ForImageClassification", "Swinv2Config", dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4), image),
        ("focalnet", "FocalNetForImageClassification", "FocalNetConfig", dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[16, 32]), image),
        ("convnextv2", "ConvNextV2ForImageClassification", "ConvNextV2Config", dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], patch_size=2), image),
        ("hiera", "HieraForImageClassification", "HieraConfig", dict(image_size=[64, 64], embed_dim=8, depths=[1, 1, 1], num_heads=[1, 2, 4], num_query_pool=2, query_stride=[2, 2], masked_unit_size=[8, 8], patch_stride=[4, 4], patch_size=[7, 7], patch_padding=[3, 3], embed_dim_multiplier=2.0), image64),
        ("swiftformer", "SwiftFormerForImageClassification", "SwiftFormerConfig", dict(image_size=64, embed_dims=[8, 16, 16, 32], depths=[1, 1, 1, 1]), image64)]},
    "segformer": ("segmentation", "SegformerForSemanticSegmentation", "SegformerConfig",
                  dict(hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=32), image64),
    "upernet": ("segmentation", "UperNetForSemanticSegmentation", "UperNetConfig",
                dict(backbone_config=("ConvNextConfig", dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage1", "stage2", "stage3", "stage4"])),
                     backbone=None, use_pretrained_backbone=False, hidden_size=16, auxiliary_in_channels=16, auxiliary_channels=16, num_labels=5), image64),
    "detr": ("object detection", "DetrForObjectDetection", "DetrConfig", DETR, image64),
    "conditional_detr": ("object detection", "ConditionalDetrForObjectDetection", "ConditionalDetrConfig", DETR, image64),
    "table_transformer": ("object detection", "TableTransformerForObjectDetection", "TableTransformerConfig", DETR, image64),
    "deformable_detr": ("object detection", "DeformableDetrForObjectDetection", "DeformableDetrConfig",
                        dict(DETR, backbone_config=("ResNetConfig", dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
                                                                         out_features=["stage2", "stage3", "stage4"])), num_feature_levels=4), image64),
    "yolos": ("object detection", "YolosForObjectDetection", "YolosConfig", dict(WIDE, image_size=[32, 32], patch_size=8, num_detection_tokens=6), image),
    "rt_detr": ("object detection", "RTDetrForObjectDetection", "RTDetrConfig",
                dict(backbone_config=("RTDetrResNetConfig", dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage2", "stage3", "stage4"])),
                     backbone=None, use_pretrained_backbone=False, encoder_hidden_dim=32, encoder_in_channels=[16, 16, 32], encoder_ffn_dim=64, d_model=32, num_queries=8,
                     decoder_in_channels=[32, 32, 32], decoder_ffn_dim=64, decoder_layers=2, decoder_attention_heads=4, encoder_attention_heads=4, num_labels=5, num_denoising=0), image64),
    "dpt": ("depth", "DPTForDepthEstimation", "DPTConfig",
            dict(SMALL_VISION, num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 16, 16, 16], fusion_hidden_size=16, is_hybrid=False), image),
    "glpn": ("depth", "GLPNForDepthEstimation", "GLPNConfig", dict(hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16), image64),
    "swin2sr": ("super resolution", "Swin2SRForImageSuperResolution", "Swin2SRConfig", dict(image_size=32, patch_size=1, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, upscale=2), image),
    "vit_mae": ("pretraining", "ViTMAEForPreTraining", "ViTMAEConfig",
                dict(SMALL_VISION, decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=4, decoder_intermediate_size=64), image),
    # sound
    **{name: ("speech", f"{stem}ForCTC", f"{stem}Config", SPEECH, sound) for name, stem in [
        ("wav2vec2", "Wav2Vec2"), ("hubert", "Hubert"), ("wavlm", "WavLM"), ("unispeech", "UniSpeech"), ("data2vec_audio", "Data2VecAudio"), ("sew", "SEW")]},
    "audio_spectrogram_transformer": ("audio classification", "ASTForAudioClassification", "ASTConfig", dict(WIDE, max_length=32, num_mel_bins=16, patch_size=8, time_stride=8, frequency_stride=8),
                                      given(input_values=lambda i: features(i, BATCH, 32, 16))),
    "speech_to_text": ("speech", "Speech2TextForConditionalGeneration", "Speech2TextConfig", dict(BART, input_feat_per_channel=16, conv_channels=32, max_source_positions=64, max_target_positions=64),
                       given(input_features=lambda i: features(i, BATCH, 40, 16), decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5), use_cache=False)),
    "encodec": ("audio codec", "EncodecModel", "EncodecConfig", dict(num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=16, upsampling_ratios=[4, 2], target_bandwidths=[30.0, 60.0], num_lstm_layers=1),
                given(input_values=lambda i: features(i, BATCH, 1, 640))),
    "moonshine": ("speech", "MoonshineForConditionalGeneration", "MoonshineConfig",
                  dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2, encoder_num_attention_heads=4,
                       decoder_num_attention_heads=4, encoder_num_key_value_heads=4, decoder_num_key_value_heads=4),
                  given(input_values=waves(4000), decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5), use_cache=False)),
    "vits": ("speech synthesis", "VitsModel", "VitsConfig",
             dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, flow_size=16, spectrogram_bins=9, upsample_initial_channel=16, upsample_rates=[2, 2],
                  upsample_kernel_sizes=[4, 4], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1]], prior_encoder_num_wavenet_layers=1, posterior_encoder_num_wavenet_layers=1,
                  duration_predictor_filter_channels=16, duration_predictor_num_flows=1, depth_separable_num_layers=1),
             given(input_ids=lambda i: torch.randint(1, 40, (1, 12), generator=generator(i, 3)))),
    # video, series, decisions
    "videomae": ("video classification", "VideoMAEForVideoClassification", "VideoMAEConfig", dict(SMALL_VISION, num_frames=4), given(pixel_values=frames())),
    "timesformer": ("video classification", "TimesformerForVideoClassification", "TimesformerConfig", dict(SMALL_VISION, num_frames=4), given(pixel_values=frames())),
    "vivit": ("video classification", "VivitForVideoClassification", "VivitConfig", dict(WIDE, image_size=32, num_frames=4, tubelet_size=[2, 8, 8]), given(pixel_values=frames())),
    "time_series_transformer": ("forecasting", "TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig", SERIES, series),
    "informer": ("forecasting", "InformerForPrediction", "InformerConfig", SERIES, series),
    "autoformer": ("forecasting", "AutoformerForPrediction", "AutoformerConfig", SERIES, series),
    "patchtst": ("forecasting", "PatchTSTForPrediction", "PatchTSTConfig",
                 dict(num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, prediction_length=4, d_model=16, num_attention_heads=2, ffn_dim=32, num_hidden_layers=2),
                 given(past_values=lambda i: features(i, BATCH, 16, 2))),
    "patchtsmixer": ("forecasting", "PatchTSMixerForPrediction", "PatchTSMixerConfig", dict(num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, prediction_length=4, d_model=16, num_layers=2),
                     given(past_values=lambda i: features(i, BATCH, 16, 2))),
    "decision_transformer": ("decisions", "DecisionTransformerModel", "DecisionTransformerConfig", dict(state_dim=5, act_dim=3, hidden_size=32, n_layer=2, n_head=4, max_ep_len=32),
                             given(states=lambda i: features(i, BATCH, 6, 5), actions=lambda i: features(i, BATCH, 6, 3), rewards=lambda i: features(i, BATCH, 6, 1),
                                   returns_to_go=lambda i: features(i, BATCH, 6, 1), timesteps=lambda i: torch.arange(6).expand(BATCH, 6).clone(),
                                   attention_mask=lambda i: torch.ones(BATCH, 6))),
    # images and text
    "siglip": ("image and text", "SiglipModel", "SiglipConfig", dict(text_config=dict(CLIP_TEXT, projection_size=64), vision_config=CLIP_VISION), given(input_ids=tokens, pixel_values=pixels())),
    "blip": ("image and text", "BlipForConditionalGeneration", "BlipConfig", dict(text_config=dict(CLIP_TEXT, encoder_hidden_size=64, projection_dim=32), vision_config=CLIP_VISION, projection_dim=32),
             given(pixel_values=pixels(), input_ids=tokens, attention_mask=padding)),
    "git": ("image and text", "GitForCausalLM", "GitConfig", dict(ENCODER, vision_config=CLIP_VISION), given(input_ids=tokens, pixel_values=pixels(), attention_mask=padding)),
    "vilt": ("image and text", "ViltForQuestionAnswering", "ViltConfig", dict(ENCODER, image_size=32, patch_size=8, max_image_length=-1, num_images=1),
             given(input_ids=tokens, pixel_values=pixels(), attention_mask=padding, pixel_mask=lambda i: torch.ones(BATCH, 32, 32, dtype=torch.long))),
    "visual_bert": ("image and text", "VisualBertForPreTraining", "VisualBertConfig", dict(ENCODER, visual_embedding_dim=16),
                    given(input_ids=tokens, attention_mask=padding, visual_embeds=lambda i: features(i, BATCH, 4, 16), visual_attention_mask=lambda i: torch.ones(BATCH, 4))),
    "llava": ("image and text", "LlavaForConditionalGeneration", "LlavaConfig",
              dict(text_config=("LlamaConfig", DECODER), vision_config=("CLIPVisionConfig", CLIP_VISION), image_token_id=7, image_token_index=7, vision_feature_layer=-1), with_image(7, 16)),
    "paligemma": ("image and text", "PaliGemmaForConditionalGeneration", "PaliGemmaConfig",
                  dict(text_config=("GemmaConfig", dict(DECODER, head_dim=16)), vision_config=("SiglipVisionConfig", CLIP_VISION), image_token_id=7, image_token_index=7, projection_dim=64, hidden_size=64),
                  with_image(7, 16)),
    "qwen2_vl": ("image and text", "Qwen2VLForConditionalGeneration", "Qwen2VLConfig",
                 dict(text_config=dict(DECODER, rope_parameters={"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}),
                      vision_config=dict(embed_dim=32, hidden_size=64, depth=2, num_heads=4, patch_size=8, mlp_ratio=2, in_channels=3, spatial_merge_size=2, temporal_patch_size=2),
                      image_token_id=7, video_token_id=6, vision_start_token_id=5, vision_end_token_id=4),
                 given(input_ids=lambda i: torch.cat([torch.full((BATCH, 1), 5), torch.full((BATCH, 4), 7), tokens(i, (BATCH, 8), low=8)], 1), attention_mask=lambda i: torch.ones(BATCH, 13, dtype=torch.long),
                       mm_token_type_ids=lambda i: torch.tensor([[0] + [1] * 4 + [0] * 8] * BATCH),
                       pixel_values=lambda i: features(i, BATCH * 16, 3 * 2 * 8 * 8), image_grid_thw=lambda i: torch.tensor([[1, 4, 4]] * BATCH))),
    "trocr": ("optical character recognition", "TrOCRForCausalLM", "TrOCRConfig", dict(vocab_size=VOCAB, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, max_position_embeddings=64),
              causal),
    "pix2struct": ("optical character recognition", "Pix2StructForConditionalGeneration", "Pix2StructConfig",
                   dict(text_config=dict(vocab_size=VOCAB, hidden_size=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
                        vision_config=dict(hidden_size=32, patch_embed_hidden_size=48, d_ff=64, d_kv=8, num_hidden_layers=2, num_attention_heads=4, seq_len=16)),
                   given(flattened_patches=lambda i: torch.cat([torch.arange(16.).view(1, 16, 1).expand(BATCH, 16, 1) // 4 + 1, torch.arange(16.).view(1, 16, 1).expand(BATCH, 16, 1) % 4 + 1,
                                                                features(i, BATCH, 16, 48)], -1), decoder_input_ids=lambda i: tokens(i, (BATCH, 8), 5))),
    "sam": ("promptable segmentation", "SamModel", "SamConfig",
            dict(vision_config=dict(hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=8, mlp_dim=64, window_size=4, global_attn_indexes=[1], num_pos_feats=8),
                 prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4),
                 mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=1, num_attention_heads=2, iou_head_hidden_dim=16)),
            given(pixel_values=pixels(64), input_points=lambda i: torch.rand(BATCH, 1, 2, 2, generator=generator(i, 23)) * 64)),
    "owlvit": ("object detection", "OwlViTForObjectDetection", "OwlViTConfig", dict(text_config=CLIP_TEXT, vision_config=CLIP_VISION, projection_dim=64),
               given(input_ids=lambda i: tokens(i, (BATCH, 16)), pixel_values=pixels(), attention_mask=lambda i: torch.ones(BATCH, 16, dtype=torch.long))),
    "clipseg": ("promptable segmentation", "CLIPSegForImageSegmentation", "CLIPSegConfig",
                dict(text_config=CLIP_TEXT, vision_config=dict(CLIP_VISION, num_hidden_layers=3), projection_dim=32, extract_layers=[0, 1, 2], reduce_dim=16, decoder_num_attention_heads=4, decoder_intermediate_size=32),
                given(input_ids=tokens, pixel_values=pixels(), attention_mask=lambda i: torch.ones(BATCH, 16, dtype=torch.long))),
}

# More than one graph in evaluation, and why: decisions on the contents of tensors, which end graphs in stock PyTorch as well.
BREAKS = {
    "longformer": "global attention is a branch of its own where a token asks for it: is_index_global_attn.flatten().any().item()",
    "led": "as longformer",
    "vilt": "an image's patches are picked by how many its mask leaves",
    "qwen2_vl": "positions are computed from image_grid_thw.tolist()",
}

# More than one graph in training only.
DROPPED = "layers are dropped at random: if torch.rand([]) < self.layerdrop"
BREAKS_IN_TRAINING = {"m2m_100": DROPPED, "time_series_transformer": DROPPED, "informer": DROPPED, "autoformer": DROPPED}

# Two runs of eager differ in training: they draw a seed of their own.
EVAL_ONLY = {"reformer"}

# What is not eager's, and why: the library computes something else when it is told that it is compiled (docs/design/is-compiling.md).
DIFFERS = {"mamba": "the scan adds in another order: last digits", "paligemma": "a mask of ones is skipped in eager only"}

ENTRIES = [Entry(name, task, builder(model, config, settings), inputs, train=name not in EVAL_ONLY, build_train=builder(model, config, settings, True))
           for name, (task, model, config, settings, inputs) in FAMILIES.items()]
