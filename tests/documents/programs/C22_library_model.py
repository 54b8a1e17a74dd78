# title: a transformers model: detect its breaks, then fullgraph
# equal: none
# expect: ^breaks 0$
# expect: ^fullgraph True$
import torch
import torch._dynamo
from transformers import BartConfig, BartModel

torch.manual_seed(0)
config = BartConfig(vocab_size=100, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                    decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64)
model = BartModel(config).eval()
ids = torch.randint(3, 100, (2, 8))
with torch.no_grad():
    print("breaks", torch._dynamo.explain(model)(ids).graph_break_count)
    compiled = torch.compile(model, fullgraph=True)
    print("fullgraph", torch.allclose(compiled(ids).last_hidden_state, model(ids).last_hidden_state, atol=1e-5))
