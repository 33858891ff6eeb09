"""File names of saved policies, in a module without torch for the nodes of a robot."""

POLICY_FILE, WEIGHTS_FILE = "policy.json", "weights.safetensors"
POLICY_GRAPH, REFINE_GRAPH = "policy.onnx", "refine.onnx"
PREFIX_GRAPH = "prefix.onnx"  # of a vision-language-action policy: pictures and words
