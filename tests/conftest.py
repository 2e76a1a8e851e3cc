import torch
from hypothesis import settings

settings.register_profile("fourward", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fourward")
torch.set_num_threads(1)  # tiny shapes; and a machine that is shared stays quick
