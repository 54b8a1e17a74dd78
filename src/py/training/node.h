/* Subgraphs that give gradients: forward and backward programs with a node of autograd between them. */
#ifndef KIN_PY_TRAINING_NODE_H
#define KIN_PY_TRAINING_NODE_H

/* py/launch leaves such subgraphs to this folder from now on. */
void kin_training_init(void);

#endif
