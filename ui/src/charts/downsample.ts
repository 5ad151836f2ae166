// Which rows of long columns to draw, so that no peak is lost.

/** Return the first row in ascending `at` that is not before `time`. */
export function firstFrom(at: Float64Array, length: number, time: number): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (at[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return the rows from `first` to before `last` to draw, at most a few for each bucket.
 *
 * In each bucket these are the first and the last row, and where each column is least and most.
 * They are rows as they were, so that what adds up in the data adds up in the picture.
 * `begins` says at which time each bucket begins, in ascending order; `at` are the rows' times.
 */
export function peaks(
  first: number,
  last: number,
  at: Float64Array,
  begins: Float64Array,
  columns: readonly Float64Array[],
): number[] {
  const most = (2 + 2 * columns.length) * begins.length;
  if (last - first <= most) return range(first, last);
  const rows: number[] = [];
  let from = first;
  for (let bucket = 1; bucket <= begins.length && from < last; bucket++) {
    const to = bucket < begins.length ? Math.min(last, firstFrom(at, last, begins[bucket])) : last;
    if (to <= from) continue;
    for (const row of extremes(from, to, columns)) rows.push(row);
    from = to;
  }
  return rows;
}

function extremes(from: number, to: number, columns: readonly Float64Array[]): number[] {
  if (to - from <= 2) return range(from, to);
  const kept = [from, to - 1];
  for (const column of columns) {
    let least = from;
    let most = from;
    let low = column[from];
    let high = low;
    for (let row = from + 1; row < to; row++) {
      const value = column[row];
      if (value < low) {
        low = value;
        least = row;
      } else if (value > high) {
        high = value;
        most = row;
      }
    }
    kept.push(least, most);
  }
  kept.sort((a, b) => a - b);
  return kept.filter((row, place) => row !== kept[place - 1]);
}

function range(first: number, last: number): number[] {
  const rows = new Array<number>(Math.max(0, last - first));
  for (let at = 0; at < rows.length; at++) rows[at] = first + at;
  return rows;
}
