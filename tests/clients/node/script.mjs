// What a prompt asks the model to write, in the marks that tests/clients/script.py reads.

/** Return a message that makes the model write these texts, one in each of its next turns. */
export function say(...turns) {
  return `Please. ${turns.map((turn) => `SAY[[${turn}]]END`).join(" ")}`;
}

/** Return a turn that is the first of these texts that the request's grammar permits. */
export function either(...texts) {
  return texts.join("|OR|");
}

/** Return a call as the bundled model writes it. */
export function call(name, input) {
  return `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(input)}}\n</tool_call>`;
}
