// Names and values side by side.
import type { ComponentChildren } from "preact";

/** One line of figures: name, value, and what it means, shown on hover. */
export type Figure = [name: string, value: ComponentChildren, meaning?: string];

export function Figures({ figures, columns = 1 }: { figures: Figure[]; columns?: number }) {
  return (
    <dl class="dc-figures" style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr) auto)` }}>
      {figures.map(([name, value, meaning]) => (
        <>
          <dt title={meaning}>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}
