#!/usr/bin/env bash
# The results in docs/reproduction.md and docs/encoders.md that need a GPU, from the specification of URBAN-SED:
#
#   earmark encoders get mn04
#   experiments/all.sh EVENTS.csv.gz SOUNDBANK OUT [STAGE ...]
#
# Stages, by default all, in this order:
#
#   sound                      soundscapes, which all other stages need
#   table-1                    the paper's nine systems; alone, because its duration is one of the results
#   mn04 best strong           parts of beyond.toml. The network of mn04 without self-training is its round 0
#   ablations "mn04 frozen"
#   operators                  operators.toml
#   few-labels                 benchmarks/few_labels.py
#   report                     tables, figures and pages of beyond.toml and operators.toml
#
# A stage is a quoted string with its options: "operators --seeds 3 --pools linear,CAP". Parts of beyond.toml, or names of
# its systems, joined by commas are one stage, whose runs share the GPU to the end: "mn04,strong --seeds 1".
#
# Run it again to continue after an interruption: finished runs are kept. A stage that fails does not stop the others.
# OUT/logs has the output of each stage, OUT/times.tsv its beginning, duration in seconds and exit code. Results are saved
# run by run: experiments/collect.sh packs them at any time. Its archive, extracted into OUT on another machine, is all
# that is needed to continue there; only runs that were not finished start again.
#
# OUT needs tens of gigabytes, best in memory (/dev/shm): soundscapes and features are read many times. With NVIDIA's
# multi-process service, runs share the GPU instead of taking turns. To run this script twice at the same time, for
# different stages, start the service before.
#
# Environment: AT_ONCE, the number of runs of a grid at the same time (4); CHANGES, settings of all runs, for trials, such
# as "epochs=1 steps=2".
set -euo pipefail
events=$1 soundbank=$2 out=$(realpath -m "$3")
here=$(realpath "$(dirname "$0")")
stages=("${@:4}")
if ((${#stages[@]} == 0)); then
	stages=(sound table-1 mn04 best strong ablations "mn04 frozen" operators few-labels report)
fi
read -ra changes <<< "${CHANGES:-}"
mkdir -p "$out/logs"
export PYTHONUNBUFFERED=1
if command -v nvidia-cuda-mps-control > /dev/null; then
	export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-$out/mps} CUDA_MPS_LOG_DIRECTORY=$out/mps
	mkdir -p "$out/mps" "$CUDA_MPS_PIPE_DIRECTORY"
	if nvidia-cuda-mps-control -d; then # otherwise it is running already
		trap 'echo quit | nvidia-cuda-mps-control' EXIT
	fi
fi

earmark() { python3 -m earmark.cli "$@"; }

grid() { # NAME [OPTION ...]
	earmark reproduce "$here/$1.toml" --data "$out/sound" --out "$out/$1" --cache "$out/features" \
		--at-once "${AT_ONCE:-4}" --no-report "${changes[@]/#/--set=}" "${@:2}"
}

run() { # STAGE [OPTION ...]
	local set=(${changes:+--set "${changes[@]}"})
	case $1 in
	sound) earmark synth "$events" "$out/sound" --soundbank "$soundbank" "${@:2}" ;;
	table-1) python3 "$here/table_1.py" "$out/sound" "$out/table-1" --seeds 1 --at-once 9 "${set[@]}" "${@:2}" ;;
	operators) grid operators "${@:2}" ;;
	few-labels)
		python3 "$here/../benchmarks/few_labels.py" run "urban-sed:$out/sound" --out "$out/few" \
			--cache "$out/features" --jobs 6 "${set[@]}" "${@:2}"
		;;
	report)
		for name in beyond operators; do
			if [ -e "$out/$name/runs.npz" ]; then
				earmark reproduce "$here/$name.toml" --out "$out/$name" --only-report "${@:2}"
			fi
		done
		;;
	*)
		local systems=,$1,
		systems=${systems/,strong,/,strong,strong with mn04,}
		systems=${systems/,ablations,/,no filter,no mixtures,no averaging,}
		systems=${systems#,}
		grid beyond --pools "${systems%,}" "${@:2}"
		;;
	esac
}

failed=()
for stage in "${stages[@]}"; do
	name=${stage%% --*}
	read -ra options <<< "${stage#"$name"}"
	begin=$(date +%s) code=0
	echo "$stage: started"
	run "$name" "${options[@]}" >> "$out/logs/$name.txt" 2>&1 || code=$?
	printf '%s\t%s\t%s\t%s\n' "$stage" "$begin" "$(($(date +%s) - begin))" "$code" >> "$out/times.tsv"
	echo "$stage: exit code $code after $(($(date +%s) - begin)) s"
	case $code in
	0) ;;
	129 | 130 | 143) exit "$code" ;; # interrupted
	*) failed+=("$name") ;;
	esac
done
if ((${#failed[@]})); then
	echo "Failed: ${failed[*]}; see $out/logs"
	exit 1
fi
