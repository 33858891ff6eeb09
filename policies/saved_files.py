"""Names of the files of a saved policy, apart from what reads and writes them: a robot's nodes load no torch."""

POLICY_FILE, WEIGHTS_FILE = "policy.json", "weights.safetensors"
POLICY_GRAPH, REFINE_GRAPH = "policy.onnx", "refine.onnx"
