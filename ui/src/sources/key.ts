// The API key, kept as long as the browser's tab.
const NAME = "caesura-api-key";

export function storedKey(): string {
  try {
    return sessionStorage.getItem(NAME) ?? "";
  } catch {
    return memory;
  }
}

export function storeKey(key: string): void {
  memory = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // Without storage the key lasts until the page is loaded again.
  }
}

let memory = "";
