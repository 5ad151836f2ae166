// Vercel's AI SDK: its OpenAI provider by both APIs, and its provider for compatible servers.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, ToolLoopAgent, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { check, equal, holds, honoured } from "./check.mjs";
import { call, either, say } from "./script.mjs";

const openai = (server) => createOpenAI({ baseURL: server.v1, apiKey: "none" });
const compatible = (server) =>
  createOpenAICompatible({
    name: "caesura",
    baseURL: server.v1,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })(server.model);
const CHAT = "ai sdk chat";
const RESPONSES = "ai sdk responses";
const COMPATIBLE = "ai sdk compatible";
const MODELS = {
  [CHAT]: (server) => openai(server).chat(server.model),
  [RESPONSES]: (server) => openai(server).responses(server.model),
  [COMPATIBLE]: compatible,
};

/** Register a check of the given libraries, which gets a library's model and the server. */
function each(feature, run, libraries = Object.keys(MODELS)) {
  for (const library of libraries) {
    check(library, feature, (server) => run(MODELS[library](server), server));
  }
}

const add = tool({
  description: "Add two numbers.",
  inputSchema: z.object({ a: z.literal([1, 2]), b: z.literal([3, 4]) }),
  execute: async ({ a, b }) => ({ sum: a + b }),
});
const negate = tool({
  description: "Negate a number.",
  inputSchema: z.object({ a: z.literal([1, 2]) }),
  execute: async ({ a }) => -a,
});
const ADD = call("add", { a: 1, b: 3 });
const LOOP = say(ADD, "It is 4.");
const paint = z.object({ colour: z.enum(["red", "green"]), coats: z.literal([1, 2, 3]) });
const RED = { colour: "red", coats: 2 };
const options = { temperature: 0, maxRetries: 0 };

async function all(stream) {
  const found = [];
  for await (const part of stream) found.push(part);
  return found;
}

/** Return the parts of a stream; throw the error that one of them holds. */
async function parts(result) {
  const found = await all(result.stream);
  for (const part of found) if (part.type === "error") throw part.error;
  return found;
}

/** Return the error of a call that must fail as the library's `APICallError`. */
async function callError(running) {
  const error = await running.then(
    () => undefined,
    (thrown) => thrown,
  );
  holds(error, "no error");
  if (!APICallError.isInstance(error)) throw error;
  return error;
}

each("generateText", async (model) => {
  const { text, finishReason, usage } = await generateText({
    ...options,
    model,
    prompt: say("Hello there."),
  });
  equal([text, finishReason], ["Hello there.", "stop"]);
  holds(usage.inputTokens > 2 && usage.outputTokens > 2, `usage is ${JSON.stringify(usage)}`);
});

each("generateText: instructions", async (model) => {
  const prompt = say("Hello.");
  const told = await generateText({ ...options, model, instructions: "Be brief.", prompt });
  const alone = await generateText({ ...options, model, prompt });
  equal(told.text, "Hello.");
  holds(told.usage.inputTokens > alone.usage.inputTokens + 3, "the instructions are not read");
});

each("generateText: messages of several turns", async (model) => {
  const messages = [{ role: "user", content: say("One.", "Two.") }];
  const first = await generateText({ ...options, model, messages });
  messages.push(...first.responseMessages, { role: "user", content: "And?" });
  equal((await generateText({ ...options, model, messages })).text, "Two.");
});

each("generateText: maxOutputTokens", async (model) => {
  const prompt = say("One two three four five.");
  const result = await generateText({ ...options, model, prompt, maxOutputTokens: 3 });
  equal([result.finishReason, result.usage.outputTokens], ["length", 3]);
});

each(
  "generateText: stopSequences",
  async (model) => {
    const prompt = say("One. Two. Three.");
    const result = await generateText({ ...options, model, prompt, stopSequences: ["Two"] });
    equal([result.text, result.finishReason], ["One. ", "stop"]);
  },
  [CHAT, COMPATIBLE],
);

each("streamText", async (model) => {
  const result = streamText({ ...options, model, prompt: say("Hello there.") });
  const texts = await all(result.textStream);
  equal(texts.join(""), "Hello there.");
  holds(texts.length > 1, "the text came at once");
  equal(await result.finishReason, "stop");
  const usage = await result.usage;
  holds(usage.inputTokens > 2 && usage.outputTokens > 2, `usage is ${JSON.stringify(usage)}`);
});

each("tool loop: stopWhen", async (model) => {
  const { text, steps } = await generateText({
    ...options,
    model,
    tools: { add },
    stopWhen: isStepCount(5),
    prompt: LOOP,
  });
  equal(text, "It is 4.");
  equal(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
  equal(steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]), [
    ["add", { a: 1, b: 3 }],
  ]);
  equal(steps[0].toolResults.map(({ output }) => output), [{ sum: 4 }]);
});

each("tool loop, streamed", async (model) => {
  const result = streamText({
    ...options,
    model,
    tools: { add },
    stopWhen: isStepCount(5),
    prompt: LOOP,
  });
  const found = await parts(result);
  const of = (type) => found.filter((part) => part.type === type);
  const typed = of("tool-input-delta").map((part) => part.delta);
  equal(JSON.parse(typed.join("")), { a: 1, b: 3 });
  equal(of("tool-call").map(({ toolName, input }) => [toolName, input]), [
    ["add", { a: 1, b: 3 }],
  ]);
  equal(of("tool-result").map(({ output }) => output), [{ sum: 4 }]);
  equal(of("text-delta").map((part) => part.text).join(""), "It is 4.");
  equal((await result.steps).map((step) => step.finishReason), ["tool-calls", "stop"]);
});

each("ToolLoopAgent", async (model) => {
  const agent = new ToolLoopAgent({ ...options, model, instructions: "Add.", tools: { add } });
  const { text, steps } = await agent.generate({ prompt: LOOP });
  equal([text, steps.length], ["It is 4.", 2]);
});

each("parallel calls", async (model) => {
  const prompt = say(`${ADD}\n${call("negate", { a: 2 })}`);
  const { toolCalls, toolResults } = await generateText({
    ...options,
    model,
    tools: { add, negate },
    prompt,
  });
  equal(toolCalls.map(({ toolName }) => toolName), ["add", "negate"]);
  equal(toolResults.map(({ output }) => output), [{ sum: 4 }, -2]);
  holds(toolCalls[0].toolCallId !== toolCalls[1].toolCallId, "both calls have one id");
});

/** Return settings for an answer that must not be the text that is asked for first. */
const rather = (text, other) => ({
  ...options,
  maxOutputTokens: 200,
  prompt: say(either(text, other)),
});

each("toolChoice: required", async (model) => {
  const { toolCalls, text } = await generateText({
    ...rather("No call.", ADD),
    model,
    tools: { add },
    toolChoice: "required",
  });
  honoured(toolCalls.length, `text ${JSON.stringify(text)}`);
  equal([toolCalls[0].toolName, toolCalls[0].invalid], ["add", undefined]);
});

each("toolChoice: required, streamed", async (model) => {
  const result = streamText({
    ...rather("No call.", ADD),
    model,
    tools: { add },
    toolChoice: "required",
  });
  const calls = (await parts(result)).filter((part) => part.type === "tool-call");
  honoured(calls.length, `text ${JSON.stringify(await result.text)}`);
  equal([calls[0].toolName, calls[0].invalid], ["add", undefined]);
});

each("toolChoice: a named tool", async (model) => {
  const { toolCalls, text } = await generateText({
    ...rather("No call.", call("negate", { a: 2 })),
    model,
    tools: { add, negate },
    toolChoice: { type: "tool", toolName: "negate" },
  });
  honoured(toolCalls.length, `text ${JSON.stringify(text)}`);
  equal([toolCalls[0].toolName, toolCalls[0].invalid], ["negate", undefined]);
});

each("toolChoice: none", async (model) => {
  const { toolCalls, text } = await generateText({
    ...options,
    model,
    tools: { add },
    toolChoice: "none",
    prompt: say("No call."),
  });
  equal([text, toolCalls.length], ["No call.", 0]);
});

const FORMAT = rather("No paint.", JSON.stringify(RED));

each("Output.object", async (model) => {
  const output = Output.object({ schema: paint });
  equal((await generateText({ ...FORMAT, model, output })).output, RED);
});

each("Output.object, streamed", async (model) => {
  const result = streamText({
    ...options,
    model,
    output: Output.object({ schema: paint }),
    prompt: say(JSON.stringify(RED)),
  });
  const partial = await all(result.partialOutputStream);
  holds(partial.length > 1, "the object came at once");
  equal(partial.at(-1), RED);
  equal(await result.output, RED);
});

each("Output.array, streamed by element", async (model) => {
  const result = streamText({
    ...options,
    model,
    output: Output.array({ element: paint }),
    prompt: say(JSON.stringify({ elements: [RED, { colour: "green", coats: 1 }] })),
  });
  equal(await all(result.elementStream), [RED, { colour: "green", coats: 1 }]);
});

each("Output.choice", async (model) => {
  const { output } = await generateText({
    ...rather("Maybe.", JSON.stringify({ result: "rainy" })),
    model,
    output: Output.choice({ options: ["sunny", "rainy"] }),
  });
  equal(output, "rainy");
});

each("Output.json", async (model) => {
  const { output } = await generateText({ ...FORMAT, model, output: Output.json() });
  equal(output, RED);
});

each("Output.object with tools", async (model) => {
  const red = JSON.stringify(RED);
  const { output, steps } = await generateText({
    ...options,
    maxOutputTokens: 200,
    model,
    tools: { add },
    output: Output.object({ schema: paint }),
    stopWhen: isStepCount(5),
    prompt: say(either(ADD, red), red),
  });
  equal(output, RED);
  honoured(steps[0].toolResults.length === 1, "no call is possible");
});

for (const [library, build] of Object.entries(MODELS)) {
  check(library, "error class of an unknown model: APICallError", async (server) => {
    const model = build({ ...server, model: "nothing" });
    const error = await callError(generateText({ ...options, model, prompt: "Hello." }));
    equal([error.statusCode, error.isRetryable], [404, false]);
    equal(error.data.error.code, "model_not_found");
  });
}

each("error class of a context overflow: APICallError", async (model) => {
  const prompt = "far too long ".repeat(9000);
  const error = await callError(generateText({ ...options, model, prompt }));
  equal([error.statusCode, error.isRetryable], [400, false]);
  equal(error.data.error.code, "context_length_exceeded");
});

each("error class in a stream: APICallError", async (model) => {
  const prompt = "far too long ".repeat(9000);
  const result = streamText({ ...options, model, prompt, onError() {} });
  equal((await callError(parts(result))).statusCode, 400);
});

check(CHAT, "logprobs", async (server) => {
  const { finalStep } = await generateText({
    ...options,
    model: MODELS[CHAT](server),
    prompt: say("Hello there."),
    providerOptions: { openai: { logprobs: 2 } },
  });
  const logprobs = finalStep.providerMetadata?.openai?.logprobs;
  honoured(logprobs, "logprobs");
  holds(logprobs.map(({ token }) => token).join("").startsWith("Hello there."), "other tokens");
});

check(RESPONSES, "previousResponseId", async (server) => {
  const model = MODELS[RESPONSES](server);
  const first = await generateText({ ...options, model, prompt: say("One.", "Two.") });
  const previousResponseId = first.finalStep.providerMetadata.openai.responseId;
  const second = await generateText({
    ...options,
    model,
    prompt: "And?",
    providerOptions: { openai: { previousResponseId } },
  });
  equal(second.text, "Two.");
});

check(RESPONSES, "tool loop with store: false", async (server) => {
  const { text, steps } = await generateText({
    ...options,
    model: MODELS[RESPONSES](server),
    tools: { add },
    stopWhen: isStepCount(5),
    prompt: LOOP,
    providerOptions: { openai: { store: false } },
  });
  equal([text, steps.length], ["It is 4.", 2]);
});

const SERVER_TOOLS = {
  ...options,
  prompt: say(call("calculator", { expression: "48 * 17" }), "It is 816."),
  providerOptions: { caesura: { server_tools: ["calculator"] } },
};
const ran = (text) => honoured(text.trim().endsWith("It is 816."), `the answer is '${text}'`);

check("server tools", "ai sdk compatible", async (server) => {
  ran((await generateText({ ...SERVER_TOOLS, model: compatible(server) })).text);
});

check("server tools", "ai sdk compatible, streamed", async (server) => {
  ran((await all(streamText({ ...SERVER_TOOLS, model: compatible(server) }).textStream)).join(""));
});
