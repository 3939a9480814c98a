"""Training: an experiment in, checkpoints and results out.

experiment        keys of an experiment and options of a run; presets and YAML files
defaults          model and training that are chosen for a user's graphs
graphs            opens the graphs of an experiment, from files or from Python
fit, loop, step   a run; its epochs; one step: forward, backward, `update`
losses, metrics   by name; `data/catalog` lists the names and the tasks that they fit
schedule, ema     learning rate and warm-up; averaged weights
batch_norm        BatchNorm statistics computed anew before an evaluation
evaluate, predict scores of a split; outputs for graphs
run_dir           files of a run; `checkpoint`: its weights, and the state from which it resumes
stop              signals, time limit, losses that are not finite
distributed       processes, devices, TF32, what fits into memory
cuda_graph        captures steps; `compile` decides whether, and runs `torch.compile`
progress          what a run prints; `task_summary`: its first lines
"""
