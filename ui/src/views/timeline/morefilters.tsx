// Further filters, behind a button: model, finish and errors, and least durations, waits and sizes.
import { useEffect, useRef, useState } from "preact/hooks";
import { setQuery } from "../../app/router";
import { trace } from "../../app/state";
import { visible } from "../session/content";
import { Choice } from "./choice";
import { choicesOf } from "./rows/filter";
import { MORE, more } from "./store";

const LEAST = [
  ["seconds", "longer than", "s"], ["waited", "waited longer than", "s"], ["tokens", "more tokens than", ""],
] as const;

const WHO = [["tenant", "Tenant", "all tenants"], ["user", "User", "all users"], ["session", "Session", "all sessions"]] as const;

/** Let everything through again. */
export function clearMore(): void {
  setQuery(Object.fromEntries(Object.keys(MORE).map((name) => [`tl.${name}`, ""])));
}

export function MoreFilters() {
  const [open, setOpen] = useState(false);
  const menu = useRef<HTMLSpanElement>(null);
  const set = Object.values(more.value).filter(Boolean).length;
  useEffect(() => {
    if (!open) return;
    const elsewhere = (event: Event): void => {
      if (!menu.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", elsewhere);
    return () => removeEventListener("pointerdown", elsewhere);
  }, [open]);
  const close = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation(); // the selection stays
    setOpen(false);
  };
  return (
    <span class="menu tl-more" ref={menu} onKeyDown={close}>
      <button aria-expanded={open} class={set ? "tl-set" : ""} onClick={() => setOpen(!open)}>Filter{set ? ` (${set})` : ""}</button>
      {open && <Fields />}
    </span>
  );
}

function Fields() {
  const shown = trace.value;
  const none = { models: [], finishes: [], errors: [], who: { tenant: [], user: [], session: [] } };
  const { models, finishes, errors, who } = shown ? choicesOf(shown) : none;
  const named = (values: string[], chosen: string): [string, string][] =>
    (chosen && !values.includes(chosen) ? [chosen, ...values] : values).map((one) => [one, visible(one)]);
  return (
    <div class="tl-fields" role="group" aria-label="Further filters">
      <Choice label="Model" value={MORE.model.value} all="all models" options={named(models, MORE.model.value)} set={(value) => (MORE.model.value = value)} />
      <Choice label="Finish" value={MORE.finish.value} all="however it ended" options={named(finishes, MORE.finish.value)} set={(value) => (MORE.finish.value = value)} />
      <Choice label="Error" value={MORE.error.value} all="with errors or without" options={named(errors, MORE.error.value)} set={(value) => (MORE.error.value = value)} />
      {MORE.failure.value && (
        <Choice label="Failure" value={MORE.failure.value} all="whatever failed" options={named([], MORE.failure.value)} set={(value) => (MORE.failure.value = value)} />
      )}
      {WHO.map(([part, label, all]) => (who[part].length > 0 || MORE[part].value !== "") && (
        <Choice key={part} label={label} value={MORE[part].value} all={all} options={named(who[part], MORE[part].value)} set={(value) => (MORE[part].value = value)} />
      ))}
      {LEAST.map(([name, words, unit]) => (
        <label key={name}>
          {words}
          <input type="number" min="0" step="any" value={MORE[name].value} onInput={(event) => (MORE[name].value = event.currentTarget.value)} />
          {unit}
        </label>
      ))}
    </div>
  );
}
