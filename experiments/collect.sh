#!/usr/bin/env bash
# The results of experiments/all.sh so far, in one small file: scores and counts of finished runs, tables, times, logs and
# learning curves, but no weights, features or sound.
#
#   experiments/collect.sh OUT FILE.tar.gz
#
# It can be called at any time, also while runs are going on. To continue on another machine, extract the file there:
#
#   mkdir -p OUT; tar xzf FILE.tar.gz -C OUT; experiments/all.sh EVENTS.csv.gz SOUNDBANK OUT
set -euo pipefail
target=$(realpath -m "$2")
mkdir -p "$(dirname "$target")"
cd "$1"
grids='(table-1|beyond|operators)/(\.earmark\.jsonl|[^./][^/]*|figures/[^/]*|(cells|curves)/.*/log\.jsonl)'
# Learning curves are renamed: a run whose folder has one, but no state, would not start again. The lists of earmark's own
# files (.earmark.jsonl) come last, so that they include the files as they were packed.
find . -regextype posix-extended -type f -regex "\./(times\.tsv|logs/.*|few/[^/]*\.(csv|log)|$grids)" -print0 |
	LC_ALL=C sort -zr |
	tar czf "$target.draft" --null -T - --transform 's|/cells/|/curves/|' --warning=no-file-changed ||
	echo "some files changed meanwhile"
mv "$target.draft" "$target"
du -h "$target"
