// Between the two protocols of Prisma's engine: the Python client writes GraphQL, the WebAssembly engine reads JSON.
// Pure. An answer has another envelope, and its values carry their types.
'use strict';

const { parse } = require('graphql');

const ACTION =
  /^(queryRaw|executeRaw|findUnique|findFirst|findMany|createOne|createMany|updateOne|updateMany|deleteOne|deleteMany|upsertOne|aggregate|groupBy)(\w*?)(OrThrow)?$/;
const JSON_OPERATORS = /^(equals|not|set|push|array_|string_|lt|lte|gt|gte)/;

/** Model to its fields' types, read from the schema's text. */
function fieldTypes(schema) {
  const models = {};
  for (const [, model, body] of schema.matchAll(/^model\s+(\w+)\s*\{([\s\S]*?)^\}/gm)) {
    const lines = body.split('\n').map((line) => /^\s*(\w+)\s+(\w+)/.exec(line));
    models[model] = Object.fromEntries(lines.filter(Boolean).map(([, field, type]) => [field, type]));
  }
  return models;
}

let known; // one schema a process
const models = (schema) => (known ??= fieldTypes(schema));

/** A GraphQL literal as a value of the JSON protocol. */
function literal(node) {
  switch (node.kind) {
    case 'NullValue':
      return null;
    case 'IntValue':
      return Number.isSafeInteger(Number(node.value)) ? Number(node.value) : { $type: 'BigInt', value: node.value };
    case 'FloatValue':
      return Number(node.value);
    case 'EnumValue':
      return /^(Json|Db|Any)Null$/.test(node.value) ? { $type: 'Enum', value: node.value } : node.value;
    case 'ListValue':
      return node.values.map(literal);
    case 'ObjectValue':
      return Object.fromEntries(node.fields.map((field) => [field.name.value, literal(field.value)]));
    default:
      return node.value;
  }
}

const isTable = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && !('$type' in value);

/** Text that stands for a Json column: in the JSON protocol plain text would be stored as a JSON string. */
function json(value) {
  if (typeof value === 'string') return { $type: 'Json', value };
  if (Array.isArray(value)) return value.map(json);
  if (!isTable(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, JSON_OPERATORS.test(key) ? json(one) : one]));
}

/** Arguments in which the values of Json columns say so; ``model``: whose fields the keys are. */
function typed(value, model, types) {
  if (Array.isArray(value)) return value.map((one) => typed(one, model, types));
  if (!isTable(value)) return value;
  const entries = Object.entries(value).map(([key, one]) => {
    const type = types[model]?.[key];
    return [key, type === 'Json' ? json(one) : typed(one, type in types ? type : model, types)];
  });
  return Object.fromEntries(entries);
}

const argumentsOf = (field) => Object.fromEntries((field.arguments ?? []).map((one) => [one.name.value, literal(one.value)]));

function selectionOf(set) {
  const fields = (set?.selections ?? []).map((field) => {
    const plain = !field.selectionSet && !field.arguments?.length;
    return [field.name.value, plain ? true : { arguments: argumentsOf(field), selection: selectionOf(field.selectionSet) }];
  });
  return Object.fromEntries(fields);
}

/** Each root field of a GraphQL document: a query of the JSON protocol, and the alias its answer goes by. */
function toJsonQueries(document, schema) {
  const { selections } = parse(document, { noLocation: true }).definitions[0].selectionSet;
  return selections.map((field) => {
    const [, action, model, orThrow = ''] = ACTION.exec(field.name.value);
    const given = argumentsOf(field);
    const query = {
      action: action + orThrow,
      query: { arguments: model ? typed(given, model, models(schema)) : given, selection: selectionOf(field.selectionSet) },
    };
    if (model) query.modelName = model;
    return { alias: (field.alias ?? field.name).value, query };
  });
}

/** A value without the types that the JSON protocol writes beside it. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return value;
  if ('$type' in value) return plain(value.value);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}

const toGraphqlAnswer = (answer, alias) =>
  answer.errors ? answer : { data: { [alias]: plain(Object.values(answer.data)[0]) } };

module.exports = { toJsonQueries, toGraphqlAnswer };
