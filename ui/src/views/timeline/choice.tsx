// A filter with a list to choose from; it stands out while it is set.
interface ChoiceProps {
  label: string;
  value: string;
  all: string;
  options: [value: string, name: string][];
  set: (value: string) => void;
}

export function Choice({ label, value, all, options, set }: ChoiceProps) {
  return (
    <select aria-label={label} value={value} class={value ? "tl-set" : ""} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">{all}</option>
      {options.map(([one, name]) => <option key={one} value={one}>{name}</option>)}
    </select>
  );
}
