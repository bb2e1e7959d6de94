#!/usr/bin/env bash
# The results in docs/reproduction.md and docs/encoders.md that need a GPU, from the specification of URBAN-SED:
#
#   earmark encoders get mn04
#   experiments/all.sh EVENTS.csv.gz SOUNDBANK OUT
#
# Run it again to continue after an interruption. OUT needs tens of gigabytes, best in memory (/dev/shm): soundscapes and
# features are read many times. With NVIDIA's multi-process service, runs share the GPU instead of taking turns.
# Table I comes first and alone, because its duration is one of the results.
set -euo pipefail
events=$1 soundbank=$2 out=$(realpath -m "$3")
here=$(dirname "$0")
mkdir -p "$out"
if command -v nvidia-cuda-mps-control > /dev/null; then
	export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps
	mkdir -p "$out/mps"
	if nvidia-cuda-mps-control -d; then # otherwise it is running already
		trap 'echo quit | nvidia-cuda-mps-control' EXIT
	fi
fi
earmark() { python3 -m earmark.cli "$@"; }

earmark synth "$events" "$out/sound" --soundbank "$soundbank"
python3 "$here/table_1.py" "$out/sound" "$out/table-1" --seeds 1 --at-once 9 --archive "$out/table-1.tar.gz"
for grid in beyond operators; do
	earmark reproduce "$here/$grid.toml" --data "$out/sound" --out "$out/$grid" --cache "$out/features" --at-once 3
done
python3 "$here/../benchmarks/few_labels.py" run "urban-sed:$out/sound" --out "$out/few" --jobs 6
