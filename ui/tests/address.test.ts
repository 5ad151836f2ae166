import { beforeEach, expect, test } from "vitest";
import { param, toggle } from "../src/app/address";
import { format, parse, route, setQuery } from "../src/app/router";

beforeEach(() => {
  route.value = parse("#/timeline");
});

test("a setting is in the address unless it is the usual one", () => {
  const sort = param("tl.sort", "arrival");
  expect(sort.value).toBe("arrival");
  sort.value = "waited";
  expect(format(route.value)).toBe("#/timeline?tl.sort=waited");
  expect(sort.peek()).toBe("waited");
  sort.value = "arrival";
  expect(format(route.value)).toBe("#/timeline");
});

test("a switch that is on by default can be off in a link", () => {
  const fold = toggle("fold", true);
  expect(fold.value).toBe(true);
  fold.value = false;
  expect(format(route.value)).toBe("#/timeline?fold=0");
  setQuery({ fold: "" });
  expect(fold.value).toBe(true);
});
