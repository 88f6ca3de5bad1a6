"""OpenAPI documents as people write them: a pet shop in OpenAPI 3.0, and a library in 3.1."""

from copy import deepcopy
from typing import Any

import yaml

PETSTORE = yaml.safe_load("""
openapi: 3.0.3
info: {title: Petstore, version: 1.0.7}
servers:
  - url: '{scheme}://{host}/v2'
    variables:
      scheme: {default: https, enum: [https, http]}
      host: {default: pets.example.com}
security: [{api_key: []}]
paths:
  /pets:
    parameters:
      - {$ref: '#/components/parameters/Trace'}
    get:
      operationId: listPets
      summary: List pets
      description: "All pets,\\r\\nthe newest first."
      tags: [pets]
      security: []
      parameters:
        - {name: limit, in: query, schema: {type: integer, maximum: 100, default: 20}}
        - {name: tags, in: query, schema: {type: array, items: {type: string}}}
        - {name: status, in: query, explode: false,
           schema: {$ref: '#/components/schemas/Statuses'}}
        - {name: 'filter[name]', in: query, description: Part of a name., schema: {type: string}}
      responses:
        200:
          description: Pets.
          content:
            application/json:
              schema: {type: array, items: {$ref: '#/components/schemas/Pet'}}
        default: {description: Error.}
    post:
      operationId: addPet
      summary: Add a pet
      requestBody: {$ref: '#/components/requestBodies/Pet'}
      responses:
        '201':
          description: Made.
          content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}
  /pets/{pet-id}:
    parameters:
      - {name: pet-id, in: path, required: true, schema: {type: integer, format: int64}}
    get:
      operationId: getPet
      responses:
        200:
          description: A pet.
          content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}
        204: {description: Sold.}
    put:
      operationId: replacePet
      parameters: [{name: name, in: query, schema: {type: string}}]
      requestBody: {$ref: '#/components/requestBodies/Pet'}
      responses: {200: {description: Done.}}
    delete:
      summary: Remove a pet
      parameters:
        - {name: X-Reason, in: header, schema: {type: string}}
        - {name: session, in: cookie, schema: {type: string}}
      responses: {204: {description: Gone.}}
  /pets/{pet-id}/status:
    post:
      operationId: set status!
      security: [{oauth: [write]}, {api_key: []}]
      parameters:
        - {name: pet-id, in: path, required: true, schema: {type: integer}}
      requestBody:
        required: true
        content:
          application/x-www-form-urlencoded:
            schema:
              type: object
              properties:
                status: {$ref: '#/components/schemas/Status'}
                notes: {type: array, items: {type: string}}
              required: [status]
      responses: {200: {description: Done., content: {text/plain: {schema: {type: string}}}}}
  /pets/{pet-id}/photo:
    post:
      operationId: upload
      parameters:
        - {name: pet-id, in: path, required: true, schema: {type: integer}}
      requestBody: {content: {multipart/form-data: {schema: {type: object}}}}
      responses: {200: {description: Done.}}
  /search:
    get:
      operationId: search
      parameters: [{name: by, in: query, style: deepObject, schema: {type: object}}]
      responses: {200: {description: Found.}}
  /secret:
    get:
      operationId: secret
      security: [{key_in_url: []}]
      responses: {200: {description: Found.}}
  /old:
    get:
      operationId: old
      deprecated: true
      responses: {200: {description: Found.}}
components:
  parameters:
    Trace: {name: X-Trace, in: header, schema: {type: string, nullable: true}}
  requestBodies:
    Pet:
      required: true
      content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}
  securitySchemes:
    api_key: {type: apiKey, in: header, name: X-Api-Key}
    key_in_url: {type: apiKey, in: query, name: key}
    oauth: {type: oauth2, flows: {}}
  schemas:
    Status: {type: string, nullable: true, enum: [available, sold]}
    Statuses: {type: array, items: {$ref: '#/components/schemas/Status'}}
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, format: int64, readOnly: true}
        name: {type: string, minLength: 1, example: Rex}
        status: {$ref: '#/components/schemas/Status'}
        price: {type: number, minimum: 0, exclusiveMinimum: true}
        secret: {type: string, writeOnly: true}
        parent: {nullable: true, allOf: [{$ref: '#/components/schemas/Pet'}]}
        kind:
          oneOf:
            - {$ref: '#/components/schemas/Cat'}
            - {$ref: '#/components/schemas/Dog'}
          discriminator: {propertyName: kind}
    Cat: {type: object, required: [lives], properties: {lives: {type: integer}}}
    Dog: {type: object, required: [bark], properties: {bark: {type: string}}}
""")

LIBRARY = yaml.safe_load("""
openapi: 3.1.0
info: {title: Library, version: '2026-11-01'}
servers: [{url: 'http://books.example.com:8080/api/'}]
paths:
  /books/{isbn}:
    get:
      operationId: readBook
      parameters:
        - {name: isbn, in: path, required: true, schema: {type: string, pattern: '^[0-9-]+$'}}
        - {name: ids, in: query, style: pipeDelimited, explode: false,
           schema: {type: [array, 'null'], items: {type: integer}}}
      responses:
        '200':
          description: A book.
          content:
            application/json:
              schema: {$ref: '#/components/schemas/Book', description: The book.}
    patch:
      operationId: changeBook
      security: [{token: []}]
      parameters:
        - {name: isbn, in: path, required: true, schema: {type: string}}
      requestBody:
        content:
          application/merge-patch+json:
            schema: {type: object, properties: {title: {type: [string, 'null']}}}
      responses: {'204': {description: Done.}}
  /shelves:
    post:
      operationId: makeShelf
      requestBody:
        required: true
        content:
          application/json:
            schema:
              oneOf:
                - {type: string}
                - {type: object, properties: {name: {const: x}}, unevaluatedProperties: false}
      responses: {'200': {description: Done., content: {application/json: {}}}}
components:
  securitySchemes:
    token: {type: http, scheme: bearer}
  schemas:
    Book:
      $id: https://elsewhere.example.com/book
      type: object
      properties:
        title: {type: string}
        published: {type: [string, 'null'], format: date}
        pages: {type: integer, exclusiveMinimum: 0}
        related: {type: array, items: {$ref: '#/components/schemas/Book'}}
        pair: {type: array, prefixItems: [{type: string}, {type: number}], items: false}
      required: [title]
""")


def petstore(**changes: Any) -> dict[str, Any]:
    return deepcopy(PETSTORE) | changes


def document_of_one(path: str = "/x", method: str = "get", **fields: Any) -> dict[str, Any]:
    """A document with one operation."""
    operation = {"operationId": "one", "responses": {"200": {"description": "Good."}}, **fields}
    components = operation.pop("components", {})
    return {
        "openapi": "3.1.0",
        "info": {"title": "One"},
        "servers": operation.pop("servers", [{"url": "https://one.example.com"}]),
        "paths": {path: {method: operation}},
        "components": components,
    }
